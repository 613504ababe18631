"""What the server reports of its tables, read on the real one."""

from __future__ import annotations

import pytest

from blockhouse.schema.model import PROVENANCE_COLUMNS, DefaultKind, ServerColumn
from blockhouse_aggregator.clickhouse.tables import caught_up, describe, fingerprints, list_tables
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.clickhouse_blocks import block, fetches_stopped, nodes, replica, rows
from tests.integration.conftest import TableFactory

pytestmark = [pytest.mark.integration, pytest.mark.clickhouse]


def test_a_replicated_table_is_described_in_full(stack: Stack, table: TableFactory) -> None:
    name = table(
        "id UInt64, text String DEFAULT 'x', twice UInt64 MATERIALIZED id * 2",
        partition_by="id % 3",
        settings={"replicated_deduplication_window": 7, "replicated_deduplication_window_seconds": 900},
    )
    server = stack.clickhouse[1, 2]
    with replica(server) as r2:
        found = describe(r2, "default", name)
    assert found is not None
    assert (found.full_name, found.replicated, found.engine) == (f"default.{name}", True, "ReplicatedMergeTree")
    assert (found.zookeeper_path, found.replica_name) == (nodes(name), server.replica)
    assert (found.deduplication_window, found.deduplication_window_seconds) == (7, 900)
    assert found.provenance == set(PROVENANCE_COLUMNS)
    assert "id" in found.partition_key
    assert found.columns[0] == ServerColumn(name="id", type="UInt64")
    kinds = {column.name: column.default_kind for column in found.columns if column.default_kind}
    assert kinds == {"text": DefaultKind.DEFAULT, "twice": DefaultKind.MATERIALIZED}
    assert [column.name for column in found.columns if not column.default_kind.insertable] == ["twice"]


def test_without_settings_of_its_own_a_table_has_the_servers_window(stack: Stack, table: TableFactory) -> None:
    name = table(provenance=False)
    server = stack.clickhouse[1, 1]
    defaults = dict(server.execute("SELECT name, value FROM system.merge_tree_settings"))
    with replica(server) as r1:
        found = describe(r1, "default", name)
    assert found is not None
    assert found.deduplication_window == int(defaults["replicated_deduplication_window"])
    assert found.deduplication_window_seconds == int(defaults["replicated_deduplication_window_seconds"])
    assert found.provenance == set()


def test_views_on_a_loaded_table_are_named(stack: Stack, table: TableFactory) -> None:
    name = table()
    server = stack.clickhouse[1, 1]
    server.execute(f"CREATE MATERIALIZED VIEW {name}_mv ENGINE = Memory AS SELECT id FROM {name}")
    try:
        with replica(server) as r1:
            found = describe(r1, "default", name)
    finally:
        server.execute(f"DROP TABLE {name}_mv")
    assert found is not None
    assert found.materialized_views == (f"default.{name}_mv",)


def test_a_fingerprint_changes_with_columns_and_views_and_not_by_itself(stack: Stack, table: TableFactory) -> None:
    name, server = table(), stack.clickhouse[1, 1]
    seen = []
    with replica(server) as r1:
        for change in (
            "SELECT 1",
            f"ALTER TABLE {name} MODIFY COLUMN text String DEFAULT 'x'",
            f"CREATE MATERIALIZED VIEW {name}_mv ENGINE = Memory AS SELECT id FROM {name}",
            f"DROP TABLE {name}_mv",
        ):
            before = fingerprints(r1)[f"default.{name}"]
            server.execute(change)
            seen.append(wait_until(lambda before=before: fingerprints(r1)[f"default.{name}"] != before, timeout=2))
    assert seen == [False, True, True, True]


def test_a_fingerprint_changes_while_another_table_has_the_name(stack: Stack, table: TableFactory) -> None:
    name, other, server = table(), table(), stack.clickhouse[1, 1]
    with replica(server) as r1:
        before = fingerprints(r1)[f"default.{name}"]
        server.execute(f"RENAME TABLE {name} TO {name}_was, {other} TO {name}")
        assert fingerprints(r1)[f"default.{name}"] != before
        server.execute(f"RENAME TABLE {name} TO {other}, {name}_was TO {name}")
        assert fingerprints(r1)[f"default.{name}"] == before


def test_a_table_without_replication_is_distinguished_and_a_missing_one_is_none(
    stack: Stack, table: TableFactory
) -> None:
    name = table()
    server = stack.clickhouse[1, 1]
    server.execute(f"CREATE TABLE {name}_local (id UInt64) ENGINE = MergeTree ORDER BY id")
    try:
        with replica(server) as r1:
            local = describe(r1, "default", f"{name}_local")
            assert describe(r1, "default", f"{name}_missing") is None
            assert {f"default.{name}", f"default.{name}_local"} <= set(list_tables(r1, "default"))
            assert not [other for other in list_tables(r1) if other.startswith("system.")]
    finally:
        server.execute(f"DROP TABLE {name}_local")
    assert local is not None
    assert (local.replicated, local.zookeeper_path, local.deduplication_window) == (False, None, 0)
    assert local.sorting_key == "id"


def test_a_replica_that_has_not_fetched_everything_reports_it(stack: Stack, table: TableFactory) -> None:
    name = table()
    writer, other = stack.clickhouse[1, 1], stack.clickhouse[1, 2]
    with replica(writer) as r1, replica(other) as r2:
        with fetches_stopped(other):
            r1.insert_native(block(writer, name, rows(1, 2), quorum=0))
            assert wait_until(lambda: not caught_up(r2, "default", name), timeout=60)
            # The writer, too, reads the entry of its part from the log, a moment later.
            assert wait_until(lambda: caught_up(r1, "default", name), timeout=60)
            assert not caught_up(r2, "default", name)
        assert wait_until(lambda: caught_up(r2, "default", name), timeout=60)
