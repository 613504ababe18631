"""Replicated tables as the product's own DDL makes them: every row names the message it came from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from clickhouse_driver.errors import ErrorCodes, ServerException

from e2e.stack.clickhouse import CLUSTER, ClickHouseServer
from e2e.stack.process import wait_until
from e2e.stack.stack import Stack

PROVENANCE = (
    "_kafka_cluster String, _kafka_partition UInt32, _kafka_offset UInt64, _kafka_row UInt32, _kafka_topic String"
)
"""Cluster and partition of the message, its offset, the row's index in it, and the topic: one identity per row."""


def create_replicated_table(
    stack: Stack,
    name: str,
    columns: str,
    *,
    order_by: str,
    partition_by: str = "tuple()",
    provenance: bool = True,
    family: str = "",
    settings: Mapping[str, str | int] | None = None,
) -> None:
    """Creates `name` (in database default) on every replica of every shard; driver errors pass through.

    `columns` is SQL, e.g. "id UInt64, text String"; `family` is that of the engine, such as "Summing"; `settings` are
    MergeTree settings of the table.
    """
    tail = ", ".join(f"{key} = {value}" for key, value in (settings or {}).items())
    ddl = (
        f"CREATE TABLE {name} ({columns}{', ' + PROVENANCE if provenance else ''}) "
        f"ENGINE = Replicated{family}MergeTree('{zookeeper_path('{shard}', name)}', '{{replica}}') "
        f"PARTITION BY {partition_by} ORDER BY ({order_by})" + (f" SETTINGS {tail}" if tail else "")
    )
    for server in stack.clickhouse.values():
        # Current servers take a FixedString of over 256 bytes for a mistake; 18.16 has no such setting, and gets none.
        server.execute(ddl, allow_suspicious_fixed_string_types=1)


def drop_replicated_table(stack: Stack, name: str) -> None:
    """Drops `name` on every replica that runs. TimeoutError: one of them refused for a minute.

    A replica that was frozen for longer than its ZooKeeper session lasts notices that here. 18.16 then forgets the
    table, reports an error, and leaves the replica's node in ZooKeeper; nothing uses the name again.
    """
    for server in stack.clickhouse.values():
        if server.alive and not server.frozen and not wait_until(partial(_dropped, server, name), timeout=60):
            raise TimeoutError(f"{server.name} has no ZooKeeper session and does not drop its table {name}")


def _dropped(server: ClickHouseServer, name: str) -> bool:
    """False: the server has no session with ZooKeeper just now; other errors pass through."""
    try:
        server.execute(f"DROP TABLE IF EXISTS {name}")
    except ServerException as error:
        if error.code != ErrorCodes.TABLE_WAS_NOT_DROPPED:
            raise
        return False
    return True


def zookeeper_path(shard: str, name: str) -> str:
    """Where the replicas of `name` in `shard` ("01" ...) meet in ZooKeeper."""
    return f"/clickhouse/tables/{CLUSTER}/{shard}/{name}"
