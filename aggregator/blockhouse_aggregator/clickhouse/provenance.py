"""Which rows of a block does this replica have? Provenance columns answer, when an intent is too old for deduplication.

Ask only with the table's lock held, and believe the answer only when no quorum was pending before and after
(`quorum.acknowledgeable`). It must never answer from a replica that lacks a part, nor by rows of a part that failed:
those are retryable faults. What the answer means is decided, purely, in `presence.py`.

The rows are read without `select_sequential_consistency`: measured on 18.16, it hides rows inserted without quorum
behind a partition's last part that had one, and rows hidden here would be inserted twice. The setting only serves as a
second witness that this replica has every part that reached its quorum, unless all replicas have lost one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from blockhouse.errors import Blocked
from blockhouse.schema.model import TOPIC_COLUMN
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.errors import NOT_IN_QUORUM, Fault, ServerFault
from blockhouse_aggregator.clickhouse.lost_parts import has_lost_a_part
from blockhouse_aggregator.clickhouse.names import qualified
from blockhouse_aggregator.clickhouse.presence import Origin, StoredRows
from blockhouse_aggregator.clickhouse.tables import IDENTITY, ServerTable, caught_up

NEWEST_ROWS = 4_000_000
"""How many rows are read before the whole table is: a tenth of a second's work, many blocks' worth."""
_NO_TOPIC = (
    "rows of these offsets are there that name no topic, and the topic was created again since, or another pipeline"
    " loads the table: no one can determine whose rows they are"
)


def stored_rows(
    replica: Replica,
    table: ServerTable,
    origin: Origin,
    begin: int,
    end: int,
    *,
    parts_lost: bool = False,
    failed: Sequence[str] = (),
    enough: Callable[[StoredRows], bool] | None = None,
) -> StoredRows:
    """Rows of the messages `[begin, end]` (both included) of one stream in `table`. With `parts_lost` a part may have
    left every replica, also the one named as the last with its quorum: the second witness would never answer. What the
    newest parts hold is the answer if it is `enough`: the whole table is read only where rows are missing in these.

    Raises Blocked for a table without provenance columns or one that merges rows, or when rows are found that may be
    another topic's; ServerFault when this replica does not have all parts yet, or has rows in one of those that
    `failed`.
    """
    _check_decidable(table, f"{begin}..{end} of {origin.cluster}/{origin.partition}")
    if table.replicated and not caught_up(replica, table.database, table.name):
        raise ServerFault(
            f"{replica.name}, table {table.full_name}: replica has not fetched all parts yet, or is read-only",
            fault=Fault.REPLICA,
            after=0.5,
        )
    if table.replicated and not parts_lost:
        _require_the_last_part(replica, table)
    if enough is not None and (newest := _newest_parts(replica, table)):
        found = _rows(replica, table, origin, begin, end, failed, newest)
        if enough(found):
            return found
    return _rows(replica, table, origin, begin, end, failed)


def _require_the_last_part(replica: Replica, table: ServerTable) -> None:
    """Raises ServerFault when this replica lacks the part that had the last quorum, unless every replica has lost a
    part: it may be that one, and then no replica would answer until the table gets another part."""
    witness = f"SELECT 1 FROM {qualified(table.database, table.name)} LIMIT 0"
    try:
        replica.query(witness, settings={"select_sequential_consistency": 1})
    except ServerFault as fault:
        if fault.code != NOT_IN_QUORUM or not has_lost_a_part(replica, table.full_name):
            raise


def _rows(
    replica: Replica,
    table: ServerTable,
    origin: Origin,
    begin: int,
    end: int,
    failed: Sequence[str],
    parts: Sequence[str] = (),
) -> StoredRows:
    """In all parts of the table, or only in `parts` (names); those of them that were merged since are not read. One
    query: a part may come or go between two.

    The offsets are the PREWHERE: of a part without any of them nothing else is read."""
    numbered, named = "_kafka_row" in table.provenance, TOPIC_COLUMN in table.provenance
    of_topic = f" AND {TOPIC_COLUMN} = %(topic)s" if named else ""
    of_parts = " AND _part IN %(parts)s" if parts else ""
    of = {"cluster": origin.cluster, "partition": origin.partition, "topic": origin.topic}
    in_failed = "countIf(_part IN %(failed)s)" if failed else "0"
    found = replica.query(
        f"SELECT _kafka_offset, count(), {in_failed}{', groupArray(_kafka_row)' if numbered else ''}"
        f" FROM {qualified(table.database, table.name)}"
        " PREWHERE _kafka_offset >= %(begin)s AND _kafka_offset <= %(end)s AND _kafka_partition = %(partition)s"
        f" WHERE _kafka_cluster = %(cluster)s{of_topic}{of_parts} GROUP BY _kafka_offset",
        {**of, "begin": begin, "end": end, "parts": tuple(parts), "failed": tuple(failed)},
    )
    where = f"table {table.full_name}, block {begin}..{end} of {origin.cluster}/{origin.partition}"
    if any(row[2] for row in found):
        text = f"rows are in a part whose quorum failed ({', '.join(failed)}), which it removes when it becomes active"
        raise ServerFault(f"{replica.name}, {where}: {text}", fault=Fault.REPLICA, after=1.0)
    if found and not origin.sole and not (named and origin.topic):
        text = f"{where}: {_NO_TOPIC}: compare them, then `blockhouse streams resolve`"
        raise Blocked(text, reason="ProvenanceAmbiguous")
    counts = {row[0]: row[1] for row in found}
    return StoredRows(counts, {row[0]: tuple(sorted(row[3])) for row in found} if numbered else None)


def _newest_parts(replica: Replica, table: ServerTable) -> list[str]:
    """Names of the parts that were written last, of NEWEST_ROWS together; none if that is the whole table."""
    parts = replica.query(
        "SELECT name, rows FROM system.parts WHERE database = %(database)s AND table = %(table)s AND active"
        " ORDER BY modification_time DESC",
        {"database": table.database, "table": table.name},
    )
    names, left = [], NEWEST_ROWS
    for name, rows in parts:
        if rows <= left:
            names.append(name)
            left -= rows
    return names if len(names) < len(parts) else []


def stored_rows_of_any_revision(
    replica: Replica, table: ServerTable, origin: Origin, begin: int, end: int, *, failed: Sequence[str] = ()
) -> StoredRows:
    """As `stored_rows` where parts may be lost, with the rows of blocks of a revision without `_kafka_topic`: they name
    no topic."""
    named = stored_rows(replica, table, origin, begin, end, parts_lost=True, failed=failed)
    if TOPIC_COLUMN not in table.provenance or not origin.topic:
        return named
    unnamed = replace(origin, topic="")
    return named.and_those_of(stored_rows(replica, table, unnamed, begin, end, parts_lost=True, failed=failed))


def _check_decidable(table: ServerTable, block: str) -> None:
    """Raises Blocked for a table whose rows never show whether a block is stored."""
    if not table.provenance >= IDENTITY:
        raise Blocked(
            f"table {table.full_name} has no columns {', '.join(sorted(IDENTITY - table.provenance))}: no one can"
            f" determine whether block {block} is stored:"
            " `blockhouse streams resolve` decides",
            reason="ProvenanceMissing",
        )
    if table.merges_rows:
        raise Blocked(
            f"table {table.full_name}: engine {table.engine} merges rows of different messages: what is there does not"
            f" show whether block {block} was stored: `blockhouse streams resolve`"
            " decides",
            reason="MergingEngine",
        )
