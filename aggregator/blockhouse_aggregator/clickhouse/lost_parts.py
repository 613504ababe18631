"""Parts that every replica has lost: rows that were acknowledged and are gone, as ClickHouse itself counts them."""

from __future__ import annotations

from blockhouse_aggregator.clickhouse.client import Replica

ANY_TABLE = "*"
"""Stands for the table where a server counts the parts of all its tables together."""


def has_lost_a_part(replica: Replica, table: str) -> bool:
    """Whether every replica has lost a part of `database.table`, or of any table where the server does not count by
    table. Raises what `Replica.query` raises."""
    lost = lost_parts(replica)
    return bool(lost.get(table) or lost.get(ANY_TABLE))


def lost_parts(replica: Replica) -> dict[str, int]:
    """By `database.table`, of which all replicas of the shard know the same number; on servers that do not count by
    table (18.16) how many this one has found lost since its start. Raises what `Replica.query` raises."""
    by_table = replica.query(
        "SELECT count() FROM system.columns"
        " WHERE database = 'system' AND table = 'replicas' AND name = 'lost_part_count'"
    )
    if by_table[0][0]:
        rows = replica.query("SELECT concat(database, '.', table), toInt64(lost_part_count) FROM system.replicas")
        return dict(rows)
    rows = replica.query("SELECT toInt64(sum(value)) FROM system.events WHERE event = 'ReplicatedDataLoss'")
    return {ANY_TABLE: rows[0][0]}
