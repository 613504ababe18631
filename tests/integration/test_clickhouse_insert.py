"""Blocks of Native bytes on real replicas: stored once, refused when they do not fit, errors classified."""

from __future__ import annotations

import dataclasses
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from blockhouse.config.endpoints import ClickHouse
from blockhouse.errors import Permanent
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from blockhouse_aggregator.clickhouse.model import InsertRequest
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.clickhouse_blocks import block, count, fetches_stopped, replica, rows
from tests.integration.clickhouse_proxy import Proxy
from tests.integration.conftest import TableFactory

pytestmark = [pytest.mark.integration, pytest.mark.clickhouse]

SLACK = 10.0
"""Seconds that a busy machine may need beyond a time-out; without one a call would take minutes."""


def test_the_same_block_sent_twice_and_by_another_replica_is_stored_once(stack: Stack, table: TableFactory) -> None:
    name = table()
    first, second = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    request = block(first, name, rows(1, 10))
    with replica(first) as r1, replica(second) as r2:
        stored = r1.insert_native(request)
        again = r1.insert_native(request)
        elsewhere = r2.insert_native(request)

    assert [stored.deduplicated, again.deduplicated, elsewhere.deduplicated] == [False, True, True]
    assert stored.elapsed > 0
    assert (count(first, name), count(second, name)) == (20, 20)


def test_rows_arrive_as_they_were_encoded(stack: Stack, table: TableFactory) -> None:
    name = table()
    server = stack.clickhouse[1, 1]
    with replica(server) as r1:
        r1.insert_native(block(server, name, rows(5, 6, per_message=1)))
        found = r1.query(f"SELECT * FROM {name} ORDER BY id")
    topic = "events/one"
    assert found == [(50, "t5", "a", 3, 5, 0, topic), (60, "t6", "a", 3, 6, 0, topic)]


def test_a_block_whose_header_is_not_the_servers_is_refused_and_nothing_is_stored(
    stack: Stack, table: TableFactory
) -> None:
    name = table()
    server = stack.clickhouse[1, 1]
    good = block(server, name, rows(1, 1))
    narrower = (("id", "UInt32"), *good.header[1:])
    misnamed = (("idd", "UInt64"), *good.header[1:])
    with replica(server) as r1:
        for header in (narrower, misnamed):
            with pytest.raises(Permanent) as refused:
                r1.insert_native(dataclasses.replace(good, header=header))
            assert refused.value.reason == "ColumnsDiffer"
        assert count(server, name) == 0
        r1.insert_native(good)  # the connection recovers
    assert count(server, name) == 2


def test_the_sample_is_the_header_of_a_block_and_inserts_nothing(stack: Stack, table: TableFactory) -> None:
    name = table()
    server = stack.clickhouse[1, 1]
    request = block(server, name, rows(1, 1))
    with replica(server) as r1:
        assert r1.sample("default", name, [column for column, _ in request.header]) == request.header
        with pytest.raises(Permanent) as missing:
            r1.sample("default", "no_such_table", ["id"])
    assert missing.value.reason == "UnknownTable"
    assert count(server, name) == 0


def test_what_the_server_cannot_do_is_detected_and_no_setting_is_dropped_silently(stack: Stack) -> None:
    server = stack.clickhouse[1, 1]
    with replica(server) as r1:
        features = r1.features()
        assert server.version.startswith(".".join(map(str, features.version[:2])))
        known = {name for (name,) in server.execute("SELECT name FROM system.settings")}
        assert features.deduplication_token == ("insert_deduplication_token" in known)
        with pytest.raises(Permanent) as unknown:
            r1.query("SELECT 1", settings={"no_such_setting": 1})
        assert unknown.value.reason == "UnknownSetting"


def test_an_unmet_quorum_is_319_and_everything_after_it_286_until_it_is_met(stack: Stack, table: TableFactory) -> None:
    name = table()
    writer, other = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    first = block(writer, name, rows(1, 10), quorum_timeout=1.0)
    second = block(writer, name, rows(11, 20), quorum_timeout=1.0)
    with replica(writer) as r1:
        with fetches_stopped(other):
            with pytest.raises(ServerFault) as unmet:
                r1.insert_native(first)
            with pytest.raises(ServerFault) as previous:
                r1.insert_native(second)
        assert (unmet.value.code, unmet.value.fault) == (319, Fault.RESEND)
        assert (previous.value.code, previous.value.fault) == (286, Fault.RESEND)

        def resent() -> bool:
            try:
                return all(r1.insert_native(request).elapsed > 0 for request in (first, second))
            except ServerFault:
                return False

        assert wait_until(resent, timeout=30)
    assert count(writer, name) == 40


def test_more_quorum_than_live_replicas_is_285_and_the_shards_fault(stack: Stack, table: TableFactory) -> None:
    name = table()
    server = stack.clickhouse[1, 1]
    with replica(server) as r1, pytest.raises(ServerFault) as few:
        r1.insert_native(block(server, name, rows(1, 1), quorum=3))
    assert (few.value.code, few.value.fault) == (285, Fault.SHARD)


def test_a_replica_that_does_not_listen_is_at_fault() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening
        unreachable = Replica(ClickHouse(port=taken.getsockname()[1], connect_timeout_seconds=1))
        with pytest.raises(ServerFault) as down:
            unreachable.query("SELECT 1")
    assert down.value.fault is Fault.REPLICA


def test_an_insert_into_a_server_that_hangs_ends_with_its_lifetime(stack: Stack, table: TableFactory) -> None:
    name = table()
    server = stack.clickhouse[1, 1]
    request = block(server, name, rows(1, 10), quorum_timeout=1.0, lifetime=3.0)
    with replica(server) as r1:
        r1.features()
        server.freeze()
        started = time.monotonic()
        with pytest.raises(ServerFault):
            r1.insert_native(request)
        assert time.monotonic() - started < request.lifetime + SLACK


def test_an_insert_whose_server_hangs_before_it_answers_ends_with_its_lifetime(
    stack: Stack, table: TableFactory
) -> None:
    name = table()
    writer, other = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    request = block(writer, name, rows(1, 10), quorum_timeout=4.9, lifetime=5.0)
    with replica(writer) as r1, fetches_stopped(other):
        r1.features()
        inserting = _Inserting(r1, request)
        assert wait_until(lambda: count(writer, name) == 20, timeout=4)  # stored, and waiting for its quorum
        writer.freeze()
        assert inserting.error(timeout=request.lifetime + SLACK).fault is Fault.RESEND


def test_a_connection_cut_in_the_middle_leaves_the_fate_open_and_a_resend_stores_once(
    stack: Stack, table: TableFactory
) -> None:
    name = table()
    writer, other = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    request = block(writer, name, rows(1, 10))
    with Proxy(writer.port) as proxy, Replica(ClickHouse(port=proxy.port)) as through, fetches_stopped(other):
        through.features()
        inserting = _Inserting(through, request)
        assert wait_until(lambda: count(writer, name) == 20, timeout=10)  # stored, and waiting for its quorum
        proxy.cut()
        lost = inserting.error(timeout=SLACK)
    assert (lost.fault, lost.code) == (Fault.RESEND, None)

    def resent() -> bool:
        with replica(other) as r2:
            try:
                return r2.insert_native(request).deduplicated is True
            except ServerFault:
                return False

    assert wait_until(resent, timeout=30)
    assert (count(writer, name), count(other, name)) == (20, 20)


class _Inserting:
    """An insert in a thread of its own, which is to fail."""

    def __init__(self, replica: Replica, request: InsertRequest) -> None:
        self._outcome = ThreadPoolExecutor(1).submit(replica.insert_native, request)

    def error(self, timeout: float) -> ServerFault:
        error = self._outcome.exception(timeout)
        assert isinstance(error, ServerFault), self._outcome
        return error


def test_a_profile_that_switches_deduplication_off_does_not(stack: Stack, table: TableFactory) -> None:
    """`deduplicate_insert` supersedes `insert_deduplicate` since 26.2: both are sent."""
    name = table()
    server = stack.clickhouse[1, 1]
    request = block(server, name, rows(1, 5))
    with replica(server) as r1:
        known = r1.features().settings
        off = {"insert_deduplicate": "0", "deduplicate_insert": "'disable'", "async_insert": "1"}
        for switch, value in off.items():
            if switch in known:
                r1.query(f"SET {switch} = {value}")  # for the session, as a profile does
        r1.insert_native(request)
        assert r1.insert_native(request).deduplicated is True
    assert count(server, name) == 10


def test_a_view_of_a_block_that_is_sent_again(stack: Stack, table: TableFactory) -> None:
    """With tokens a resend reaches the views too: exact in a replicated table, doubled in any other."""
    name, exact = table(), table("id UInt64, n UInt64", provenance=False)
    server = stack.clickhouse[1, 1]
    server.execute(f"CREATE TABLE {name}_plain (id UInt64, n UInt64) ENGINE = MergeTree ORDER BY id")
    for target in (exact, f"{name}_plain"):
        server.execute(
            f"CREATE MATERIALIZED VIEW {target}_view TO {target} AS SELECT id, count() AS n FROM {name} GROUP BY id"
        )
    request = block(server, name, rows(1, 5))
    try:
        with replica(server) as r1:
            tokens = r1.features().deduplication_token
            r1.insert_native(request)
            r1.insert_native(request)
        assert (count(server, name), count(server, exact)) == (10, 10)
        assert count(server, f"{name}_plain") == (20 if tokens else 10)
    finally:
        for view in (f"{exact}_view", f"{name}_plain_view", f"{name}_plain"):
            server.execute(f"DROP TABLE {view}")
