"""A block across an ALTER: without deduplication tokens the same bytes become another part, so the server would store
them twice. Nothing may be resent unless the table is certainly as it was."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any

import pytest
import structlog
from clickhouse_driver.errors import ServerException

from blockhouse.config.endpoints import ClickHouse
from blockhouse.errors import Retryable
from blockhouse.schema.ddl import read_declaration
from blockhouse_aggregator.clickhouse import client as client_module
from blockhouse_aggregator.clickhouse import declared, tables
from blockhouse_aggregator.clickhouse.client import Replica, Settings
from blockhouse_aggregator.clickhouse.errors import classify
from blockhouse_aggregator.clickhouse.model import difference
from blockhouse_aggregator.clickhouse.quorum import QuorumProbe
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.clickhouse_blocks import block, count, nodes, only, replica, rows, zookeeper
from tests.integration.conftest import TableFactory

pytestmark = [pytest.mark.integration, pytest.mark.clickhouse]


def test_a_block_across_an_added_column_is_known_by_its_token_alone(stack: Stack, table: TableFactory) -> None:
    """Without tokens the server stores it twice: why an insert can be exact."""
    name = table()
    server = stack.clickhouse[1, 1]
    request = block(server, name, rows(1, 5))
    with replica(server) as r1:
        tokens = r1.features().deduplication_token
        r1.insert_native(request)
        r1.query(f"ALTER TABLE {name} ADD COLUMN extra UInt8 AFTER id")
        again = r1.insert_native(dataclasses.replace(request, by_token=tokens))
    assert again.deduplicated is tokens
    assert count(server, name) == (10 if tokens else 20)


def test_a_token_knows_a_block_whose_bytes_are_others(stack: Stack, table: TableFactory) -> None:
    """As another version of Blockhouse may encode it, or from another replica."""
    only(stack, tokens=True)
    name = table(partition_by="id % 2")
    server, other = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    first = block(server, name, rows(1, 5))
    encoded = dataclasses.replace(block(server, name, rows(1, 5)[::-1]), token=first.token, by_token=True)
    with replica(server) as r1, replica(other) as r2:
        assert r1.insert_native(first).deduplicated is False
        assert encoded.body != first.body
        assert r2.insert_native(encoded).deduplicated is True
    assert count(server, name) == 10


def test_what_a_block_was_to_be_recognised_by_and_is_not_there_refuses_the_insert(
    stack: Stack, table: TableFactory
) -> None:
    name = table()
    server = stack.clickhouse[1, 1]
    request = block(server, name, rows(1, 5))
    with replica(server) as r1:
        tokens = r1.features().deduplication_token
        with pytest.raises(Retryable, match="its server has tokens"):
            r1.insert_native(dataclasses.replace(request, exact=tokens, by_token=not tokens))
    assert count(server, name) == 0


def test_an_exact_insert_is_refused_once_a_column_was_added_and_sends_no_row(stack: Stack, table: TableFactory) -> None:
    only(stack, tokens=False)
    name = table()
    server = stack.clickhouse[1, 1]
    request = block(server, name, rows(1, 5))
    exact = dataclasses.replace(request, exact=True)
    with replica(server) as r1:
        assert r1.insert_native(exact).deduplicated is False
        assert r1.insert_native(exact).deduplicated is True  # the same hash with and without a list of columns
        assert r1.insert_native(request).deduplicated is True
        r1.query(f"ALTER TABLE {name} ADD COLUMN extra UInt8 AFTER id")
        with pytest.raises(Retryable, match="altered meanwhile"):
            r1.insert_native(exact)
    assert count(server, name) == 10


def test_the_structure_an_exact_insert_was_checked_against_stays_until_its_end(
    stack: Stack, table: TableFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(stack, tokens=False)
    name = table()
    server = stack.clickhouse[1, 1]
    request = dataclasses.replace(block(server, name, rows(1, 5)), exact=True)
    altering: list[Future[object]] = []

    def alter_after_the_comparison(ours: object, theirs: object) -> object:
        found = difference(ours, theirs)  # type: ignore[arg-type]
        altering.append(pool.submit(server.execute, f"ALTER TABLE {name} ADD COLUMN extra UInt8"))
        with pytest.raises(FutureTimeoutError):
            altering[0].result(1.0)
        return found

    with ThreadPoolExecutor(1) as pool, replica(server) as r1:
        r1.insert_native(request)
        monkeypatch.setattr(client_module, "difference", alter_after_the_comparison)
        again = r1.insert_native(request)
        altering[0].result(60)
    assert again.deduplicated is True
    assert count(server, name) == 10


def test_an_alter_is_seen_in_zookeeper_by_its_time_and_by_a_replica_that_lags(
    stack: Stack, table: TableFactory
) -> None:
    name = table()
    first, second = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    with zookeeper(stack) as zk:
        probe = QuorumProbe(zk)
        now = time.time_ns() // 1_000_000
        assert not probe.altered_since(nodes(name), first.replica, now - 60_000), "CREATE TABLE is no ALTER"

        second.freeze()
        # 18.16 waits for every replica, and ends with an error when one does not follow in time.
        with suppress(ServerException):
            first.execute(f"ALTER TABLE {name} ADD COLUMN extra UInt8", replication_alter_columns_timeout=1)
        assert probe.altered_since(nodes(name), first.replica, now)
        later = now + 120_000
        assert wait_until(lambda: not probe.altered_since(nodes(name), first.replica, later), timeout=60)
        assert probe.altered_since(nodes(name), second.replica, later), "it has not applied what the shard decided"
        second.thaw()
        assert wait_until(lambda: not probe.altered_since(nodes(name), second.replica, later), timeout=60)
        assert probe.altered_since("/no/such/table", first.replica, later)


class Impatient(Replica):
    """Waits a second for what an ALTER asks of replicas, or not at all, and reports it as servers do that waited."""

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, settings: Settings | None = None
    ) -> list[tuple[Any, ...]]:
        if not sql.startswith("ALTER"):
            return super().query(sql, params, settings)
        if not self.features().deduplication_token:
            return super().query(sql, params, {"replication_alter_columns_timeout": 1})
        super().query(sql, params, {"alter_sync": 0})
        raise classify(declared.UNFINISHED, "Alter is not finished", self.name)


def alter_left_at(stack: Stack, name: str, statement: str) -> None:
    """r2 lacks what the statement adds: on 18.16 it was frozen until its session with ZooKeeper had expired, others
    carry out nothing before the table is restarted."""
    first, second = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    with zookeeper(stack) as zk, replica(second) as r2:
        if r2.features().deduplication_token:
            second.execute(f"SYSTEM STOP REPLICATION QUEUES {name}")
            return
        alive = f"{nodes(name)}/replicas/{second.replica}/is_active"
        second.freeze()
        assert wait_until(lambda: zk.exists(alive) is None, timeout=60)
        with pytest.raises(ServerException, match="some replicas"):
            first.execute(statement, replication_alter_columns_timeout=1)
        second.thaw()
        assert wait_until(lambda: zk.exists(alive) is not None, timeout=60)


def test_an_alter_that_one_replica_leaves_is_carried_out_there_by_restarting_its_table(
    stack: Stack, table: TableFactory
) -> None:
    """18.16 may after all carry it out by itself while it is asked for; then nothing is restarted."""
    name = table()
    first, second = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    with replica(first) as r1:
        r1.insert_native(block(first, name, rows(1, 2)))
    columns = "id UInt64, text String, one UInt8, two UInt8"
    desired = read_declaration(
        f"default.{name}", f"CREATE TABLE default.{name} ({columns}) ENGINE = MergeTree ORDER BY id"
    )
    added = [each for each in desired.columns if each.column.name in {"one", "two"}]
    alter_left_at(stack, name, f"ALTER TABLE {name} ADD COLUMN one UInt8 AFTER text, ADD COLUMN two UInt8 AFTER one")

    with Impatient(ClickHouse(host=second.host, port=second.port)) as r2, structlog.testing.capture_logs() as logs:
        found = declared.compared(r2, desired)
        assert found is not None
        if found.added:
            declared.add_columns(r2, desired, added)
            restarted = [each["event"] for each in logs]
            assert restarted == ["ddl.table_restarted"] or (not restarted and not r2.features().deduplication_token)
        found = declared.compared(r2, desired)

    assert found is not None
    assert found.none
    assert wait_until(lambda: first.execute(f"SELECT count() FROM {name} WHERE one + two = 0") == [(4,)], timeout=20)
    with replica(second) as r2:
        assert wait_until(lambda: tables.caught_up(r2, "default", name), timeout=20)
        assert r2.insert_native(block(second, name, rows(3, 4))).deduplicated is False
    assert wait_until(lambda: count(first, name) == 8, timeout=20)
