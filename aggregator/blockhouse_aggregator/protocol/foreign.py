"""From the metadata of eBay's aggregator (v0, v1) and a survey of its log to metadata of ours, and back. Pure.

There each table has a place of its own: everything below `begin` is stored, `[begin, end]` was committed as one block
and may be stored or not, nothing above `end` is. Here one position P serves all tables, so P becomes the offset behind
the last `end`, and what lies between a table's own end and P makes it lag. A table that is not named was never read.

Must never call a foreign block ours: its rows were sent without provenance, in bytes only its writer knew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from blockhouse.metadata.ebay import EbayMetadata, EbayTable
from blockhouse.metadata.model import FOREIGN, InFlight, Metadata, TableEntry, Window


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """What the metadata records of one table; `begin = end + 1` means that nothing is in flight. `revision` is the one
    with which its block is rebuilt."""

    table: int
    begin: int
    end: int
    revision: int


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What the log holds of one table between the survey's start and stop, by its `ForeignTable` (an unnamed table has
    the empty range before the start).

    `stored` counts its messages below `begin`, `inside` those in `[begin, end]`, `beyond` those above `end`, of which
    `first_beyond` is the first (None: none); `oldest_ms` is the least timestamp of those inside.
    """

    table: int
    stored: int = 0
    inside: int = 0
    beyond: int = 0
    first_beyond: int | None = None
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """What the log holds of [start, stop)."""

    start: int
    stop: int
    tables: tuple[Surveyed, ...]


def bounds(offset: int, tables: tuple[ForeignTable, ...], log_begin: int) -> tuple[int, int]:
    """What has to be surveyed: [start, stop), of which `stop` becomes P.

    Example: offset 6, A [6, 9], B (11, 10), log from 0: [6, 11). Without tables everything below `offset` is stored.
    """
    stop = max([offset, *(table.end + 1 for table in tables)])
    return min(max(offset, log_begin), stop), stop


def adopt(tables: tuple[ForeignTable, ...], survey: Survey, *, topic_id: str, seq: int, now_ms: int) -> Metadata:
    """The metadata a writer of ours would have committed in this place. `seq`: the number to continue from, which is
    not 0 when the stream was ours before it was handed back."""
    named = {table.table: table for table in tables}
    found = {seen.table: seen for seen in survey.tables}
    entries = []
    sealed = 0
    for number in sorted(named.keys() | found.keys()):
        foreign, seen = named.get(number), found.get(number, Surveyed(number))
        block = _in_flight(foreign, seen, now_ms) if foreign is not None and foreign.begin <= foreign.end else None
        sealed += seen.stored + (block.messages if block else 0)
        if block is not None or seen.beyond:
            entries.append(TableEntry(number, block, seen.first_beyond, seen.beyond))
    pending = sum(entry.pending for entry in entries)
    holes = max(0, survey.stop - survey.start - sealed - pending)
    return Metadata(
        replica="",
        seq=seq,
        intent_ms=now_ms,
        topic_id=topic_id,
        leader_epoch=-1,
        position=survey.stop,
        window=Window(max(0, survey.stop - sealed - holes - pending), sealed=sealed, holes=holes),
        tables=tuple(entries),
    )


def _in_flight(foreign: ForeignTable, seen: Surveyed, now_ms: int) -> InFlight:
    """No message of it was younger than its intent, so its age is at most that of the oldest one. A block of which the
    log holds nothing keeps one message: it cannot be rebuilt, and must not be forgotten."""
    oldest = now_ms if seen.oldest_ms is None else min(now_ms, seen.oldest_ms)
    return InFlight(foreign.begin, foreign.end, max(1, seen.inside), FOREIGN, foreign.revision, max(0, oldest))


def hand_back(metadata: Metadata, names: Mapping[int, str], replica: str) -> EbayMetadata:
    """The same place in the stream in version 1, for eBay's aggregator to continue from. `names` are all tables.

    A table that is not named there was never read, so each is named. Nothing may be in flight: that aggregator would
    send the block as it sends blocks, without provenance, which is another block. Nor may every table lag: version 1
    would not record how far the stream was read: its return would look as if offsets went back. Raises ValueError then.
    """
    entries = {entry.table: entry for entry in metadata.tables}
    if any(entry.in_flight is not None for entry in metadata.tables) or entries.keys() - names.keys():
        raise ValueError("a block is in flight, or a table has no name")
    tables = {}
    for number, name in sorted(names.items(), key=lambda item: item[1]):
        entry = entries.get(number)
        begin = metadata.position if entry is None or entry.cursor is None else entry.cursor
        tables[name] = EbayTable(begin, begin - 1, 0)
    if tables and all(table.begin < metadata.position for table in tables.values()):
        raise ValueError("every table lags behind the position")
    return EbayMetadata(1, replica, -1, tables)
