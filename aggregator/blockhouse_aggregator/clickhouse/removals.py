"""Whether rows of a table may have been removed on purpose: what is not stored is no proof then that it was lost.

Read from `system.*` in columns that 18.16 and current servers share. What leaves no trace (DROP PARTITION, mutations
that the server has forgotten) is not found: a person has to know it.
"""

from __future__ import annotations

import re

from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.tables import ServerTable

ROWS_REMOVED = "RowsRemoved"
_TABLE_TTL = re.compile(r"\)\s*ENGINE\b.*?\bTTL\b(?P<rules>.*?)(?:\bSETTINGS\b|\bCOMMENT\b|$)", re.DOTALL)
_MOVES = re.compile(r"\bTO\s+(?:DISK|VOLUME)\b")
_DELETES = re.compile(r"^\s*\(?\s*DELETE\b|\b_row_exists\s*=\s*0", re.IGNORECASE)


def why_rows_may_be_removed(replica: Replica, table: ServerTable) -> str:
    """In words; empty when nothing is known that removes rows. Raises what `Replica.query` raises."""
    where = {"database": table.database, "name": table.name}
    create = replica.query(
        "SELECT create_table_query FROM system.tables WHERE database = %(database)s AND name = %(name)s", where
    )
    if create and (rules := removing_ttl(create[0][0])):
        return f"its TTL removes rows ({rules})"
    mutations = replica.query(
        "SELECT command FROM system.mutations WHERE database = %(database)s AND table = %(name)s", where
    )
    deleted = next((command for (command,) in mutations if _DELETES.search(command)), "")
    return f"rows were deleted ({deleted})" if deleted else ""


def removing_ttl(create: str) -> str:
    """The table's TTL in its CREATE statement, unless it only moves rows to other disks; empty without one. TTLs of
    columns remove no row."""
    found = _TABLE_TTL.search(create)
    rules = found["rules"].strip() if found else ""
    only_moves = rules and all(_MOVES.search(rule) for rule in re.split(r",(?![^()]*\))", rules))
    return "" if only_moves else rules
