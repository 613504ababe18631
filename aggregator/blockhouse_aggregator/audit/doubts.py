"""What of a table no audit can judge, and why: rows that its engine merges, or that were removed on purpose.

Read from `system.*` in columns that 18.16 and current servers share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.removals import deletes, removing_ttl
from blockhouse_aggregator.clickhouse.tables import merges_rows


@dataclass(frozen=True, slots=True)
class Doubt:
    """`why` is in words, empty without a doubt. `of_all`: no difference can be judged; else none by missing rows."""

    why: str = ""
    of_all: bool = False


NONE = Doubt()


def doubts(replica: Replica, tables: Mapping[str, frozenset[str]]) -> Mapping[str, Doubt]:
    """Of those of `tables`, with the names of their columns, about which there is one. Raises what `Replica.query`
    raises."""
    found: dict[str, Doubt] = {}
    for table, command in replica.query("SELECT concat(database, '.', table), command FROM system.mutations"):
        if table in tables and deletes(command):
            found[table] = Doubt(f"rows were deleted ({command})")
    rows = replica.query(
        "SELECT concat(database, '.', name), engine, sorting_key, create_table_query FROM system.tables"
    )
    for table, engine, sorting_key, create in rows:
        if table not in tables:
            continue
        if rules := removing_ttl(create):
            found[table] = Doubt(f"its TTL removes rows ({rules})")
        if merges_rows(engine, sorting_key, tables[table]):
            found[table] = Doubt(f"engine {engine} makes one row of several", of_all=True)
    return found
