"""Whether rows of a table may have been removed on purpose: what is not there is no proof then that it was lost, or
never stored.

Read from `system.*` in columns that 18.16 and current servers share. What leaves no trace (DROP PARTITION, mutations
that the server has forgotten) is not found: a person has to know it.
"""

from __future__ import annotations

import re

from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.tables import ServerTable

ROWS_REMOVED = "RowsRemoved"
_TABLE_TTL = re.compile(r"\)\s*ENGINE\b.*?\bTTL\b(?P<rules>.*?)(?:\bSETTINGS\b|\bCOMMENT\b|$)", re.DOTALL)
_ROLLS_UP = re.compile(r"\bGROUP BY\b")
_MOVES = re.compile(r"\bTO\s+(?:DISK|VOLUME)\b")
_DELETES = re.compile(r"^\s*\(?\s*DELETE\b|\b_row_exists\s*=\s*0", re.IGNORECASE)


def why_rows_may_be_removed(replica: Replica, table: ServerTable) -> str:
    """In words; empty when nothing is known that removes rows. Raises what `Replica.query` raises."""
    if rules := _ttl(replica, table):
        return f"its TTL removes rows ({rules})"
    return _deleted(replica, table, 0)


def why_not_to_insert_again(replica: Replica, table: ServerTable, since_ms: int) -> str:
    """In words, why a row that was inserted since (Unix milliseconds) and is not there must not be inserted again;
    empty when nothing is known. A TTL that only deletes is no reason: what it removed it removes again. Raises what
    `Replica.query` raises."""
    if _ROLLS_UP.search(rules := _ttl(replica, table)):
        return f"its TTL makes one row of several ({rules})"
    return _deleted(replica, table, since_ms)


def _ttl(replica: Replica, table: ServerTable) -> str:
    create = replica.query(
        "SELECT create_table_query FROM system.tables WHERE database = %(database)s AND name = %(name)s",
        {"database": table.database, "name": table.name},
    )
    return removing_ttl(create[0][0]) if create else ""


def _deleted(replica: Replica, table: ServerTable, since_ms: int) -> str:
    """A mutation that deletes and was begun since, or has not ended yet."""
    mutations = replica.query(
        "SELECT command FROM system.mutations WHERE database = %(database)s AND table = %(name)s"
        " AND (NOT is_done OR toUnixTimestamp(create_time) >= %(since)s)",
        {"database": table.database, "name": table.name, "since": since_ms // 1000},
    )
    deleted = next((command for (command,) in mutations if deletes(command)), "")
    return f"rows were deleted ({deleted})" if deleted else ""


def deletes(mutation: str) -> bool:
    """Whether this command of an ALTER removes rows."""
    return bool(_DELETES.search(mutation))


def removing_ttl(create: str) -> str:
    """The table's TTL in its CREATE statement, unless it only moves rows to other disks; empty without one. TTLs of
    columns remove no row."""
    found = _TABLE_TTL.search(create)
    rules = found["rules"].strip() if found else ""
    only_moves = rules and all(_MOVES.search(rule) for rule in re.split(r",(?![^()]*\))", rules))
    return "" if only_moves else rules
