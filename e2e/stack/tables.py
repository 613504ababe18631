"""Replicated tables as the product's own DDL makes them: every row says which message it came from."""

from __future__ import annotations

from collections.abc import Mapping

from e2e.stack.clickhouse import CLUSTER
from e2e.stack.stack import Stack

PROVENANCE = "_kafka_cluster String, _kafka_partition UInt32, _kafka_offset UInt64, _kafka_row UInt32"
"""Cluster and partition of the message, its offset, and the row's index in it: one identity per row."""


def create_replicated_table(
    stack: Stack,
    name: str,
    columns: str,
    *,
    order_by: str,
    partition_by: str = "tuple()",
    provenance: bool = True,
    settings: Mapping[str, str | int] | None = None,
) -> None:
    """Creates `name` (in database default) on every replica of every shard; driver errors pass through.

    `columns` is SQL, e.g. "id UInt64, text String"; `settings` are MergeTree settings of the table.
    """
    tail = ", ".join(f"{key} = {value}" for key, value in (settings or {}).items())
    ddl = (
        f"CREATE TABLE {name} ({columns}{', ' + PROVENANCE if provenance else ''}) "
        f"ENGINE = ReplicatedMergeTree('{zookeeper_path('{shard}', name)}', '{{replica}}') "
        f"PARTITION BY {partition_by} ORDER BY ({order_by})" + (f" SETTINGS {tail}" if tail else "")
    )
    for server in stack.clickhouse.values():
        server.execute(ddl)


def drop_replicated_table(stack: Stack, name: str) -> None:
    """Drops `name` on every replica that runs."""
    for server in stack.clickhouse.values():
        if server.alive and not server.frozen:
            server.execute(f"DROP TABLE IF EXISTS {name}")


def zookeeper_path(shard: str, name: str) -> str:
    """Where the replicas of `name` in `shard` ("01" ...) meet in ZooKeeper."""
    return f"/clickhouse/tables/{CLUSTER}/{shard}/{name}"
