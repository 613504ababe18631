"""Make the local replica's table what its owner declares: create it, or add columns; never anything else.

A replicated ALTER reaches every replica of the shard. The caller of `add_columns` has made sure that no block of the
table is on its way to any of them.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import structlog
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from blockhouse.errors import Permanent, Retryable
from blockhouse.schema.ddl import COMPACT_TOPIC, TOPIC_TYPE, Declaration, DeclaredColumn
from blockhouse.schema.difference import Difference, add_columns_statement, compare, create_statement
from blockhouse.schema.server_types import lacking
from blockhouse_aggregator.clickhouse import tables
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.names import identifier, qualified

log = structlog.get_logger(__name__)
UNFINISHED = 341
"""The statement is recorded for the shard, and some replica has not carried it out in the server's own time."""
HEALED = 10.0
"""Seconds that a restarted table may take to have what the shard has recorded; 3 were seen."""
ATTACHED = 2
"""18.16 refuses a table that lacks more columns than these when it is restarted, and the server then does not start."""


_FAMILIES = "SELECT name FROM system.data_type_families"


def compared(replica: Replica, declared: Declaration) -> Difference | None:
    """How this replica's table differs from the declaration; None when it has no such table. Whether this server has
    the types is `lacking_types`."""
    found = tables.describe(replica, declared.database, declared.table)
    if found is None:
        return None
    return compare(declared, found.definition)


def lacking_types(replica: Replica, declared: Declaration, difference: Difference | None) -> tuple[str, ...]:
    """Why columns that this server would get cannot be there: their types are not. `difference` is what `compared`
    found."""
    added = declared.columns if difference is None else difference.added
    if not added:
        return ()
    families = {str(name) for (name,) in replica.query(_FAMILIES)}
    return tuple(lacking(added, replica.features().version_text, families))


def topic_type(replica: Replica) -> str:
    """Of the topic's column in a table that this server is the first to have."""
    return COMPACT_TOPIC if replica.features().low_cardinality else TOPIC_TYPE


def create(
    replica: Replica, declared: Declaration, *, path: str, name: str, settings: Sequence[tuple[str, int]]
) -> None:
    """Create database and table here, as replica `name` of the table at `path`, unless they exist."""
    replica.query(f"CREATE DATABASE IF NOT EXISTS {identifier(declared.database)}")
    replica.query(create_statement(declared, path=path, replica=name, settings=settings))


def add_columns(replica: Replica, declared: Declaration, added: Sequence[DeclaredColumn]) -> None:
    """Add the columns on all replicas; returns when this one has them. Raises what `Replica.query` raises.

    18.16 may never carry out an ALTER at a replica whose session with ZooKeeper has expired, and answers every further
    one with UNFINISHED. The table is then restarted here, once, which reads what the shard has recorded, unless it
    lacks more columns than that server takes in at a restart.
    """
    names = {each.column.name for each in added}
    try:
        replica.query(add_columns_statement(declared, added))
    except Permanent:
        found = compared(replica, declared)
        if found is None or not found.none:
            raise
        log.info("ddl.columns_came", table=declared.name, replica=replica.name)  # by an earlier ALTER, meanwhile
    except Retryable as error:
        if error.code != UNFINISHED:
            raise
        if not _lacks(replica, declared, names):  # another replica is the one that is late
            return
        _restart(replica, declared, len(names), error)
        if not _has_soon(replica, declared, names):
            raise


def _restart(replica: Replica, declared: Declaration, lacking: int, unfinished: Retryable) -> None:
    """Raises Retryable also when it is forbidden: the ALTER may still happen, so the table must stay paused."""
    if lacking > ATTACHED and not replica.features().deduplication_token:
        why = f"this server would refuse the restarted table, which lacks {lacking} columns"
        text = f"{unfinished}; {why}: restore it by hand (docs/schema-changes.md)"
        raise Retryable(text, after=unfinished.after, code=UNFINISHED) from unfinished
    log.warning("ddl.table_restarted", table=declared.name, replica=replica.name, why=str(unfinished))
    try:
        replica.query(f"SYSTEM RESTART REPLICA {qualified(declared.database, declared.table)}")
    except Permanent as refused:
        text = f"{unfinished}; its table could not be restarted, run SYSTEM RESTART REPLICA there: {refused}"
        raise Retryable(text, after=unfinished.after, code=UNFINISHED) from refused


def _lacks(replica: Replica, declared: Declaration, names: Set[str]) -> bool:
    """Whether this replica has not all columns of these names, or no such table at this moment."""
    difference = compared(replica, declared)
    return difference is None or any(each.column.name in names for each in difference.added)


@retry(
    retry=retry_if_result(lambda has: not has),
    stop=stop_after_delay(HEALED),
    wait=wait_fixed(0.2),
    retry_error_callback=lambda _: False,
)
def _has_soon(replica: Replica, declared: Declaration, names: Set[str]) -> bool:
    return not _lacks(replica, declared, names)
