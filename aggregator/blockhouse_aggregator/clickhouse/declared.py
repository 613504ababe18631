"""Make the local replica's table what its owner declares: create it, or add columns; never anything else.

A replicated ALTER reaches every replica of the shard. The caller of `add_columns` has made sure that no block of the
table is on its way to any of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from blockhouse.schema.ddl import Declaration, DeclaredColumn
from blockhouse.schema.difference import Difference, FoundTable, add_columns_statement, compare, create_statement
from blockhouse_aggregator.clickhouse import tables
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.names import identifier


def compared(replica: Replica, declared: Declaration) -> Difference | None:
    """How this replica's table differs from the declaration; None when it has no such table."""
    found = tables.describe(replica, declared.database, declared.table)
    if found is None:
        return None
    return compare(declared, FoundTable(found.engine, found.columns, found.partition_key, found.sorting_key))


def create(
    replica: Replica, declared: Declaration, *, path: str, name: str, settings: Sequence[tuple[str, int]]
) -> None:
    """Create database and table here, as replica `name` of the table at `path`, unless they exist."""
    replica.query(f"CREATE DATABASE IF NOT EXISTS {identifier(declared.database)}")
    replica.query(create_statement(_fitted(replica, declared), path=path, replica=name, settings=settings))


def add_columns(replica: Replica, declared: Declaration, added: Sequence[DeclaredColumn]) -> None:
    """Add the columns on all replicas; returns when this one has them."""
    fitted, names = _fitted(replica, declared), {each.column.name for each in added}
    replica.query(add_columns_statement(fitted, [each for each in fitted.columns if each.column.name in names]))


def _fitted(replica: Replica, declared: Declaration) -> Declaration:
    """With the types that this server has for what was not declared."""
    return declared.with_compact_topic() if replica.features().low_cardinality else declared
