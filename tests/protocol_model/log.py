"""The stream's log and the two things a worker does with it: scan a range and rebuild a block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from zlib import crc32

from blockhouse.metadata.model import InFlight
from blockhouse_aggregator.protocol.events import ScanReport, SealedBlock, TableScan
from blockhouse_aggregator.protocol.schedule import ScanRequest

REVISION = 1
Rows = tuple[int, ...]
"""The rows of a block: one per message, named by its offset. Two blocks with equal rows are equal byte by byte."""


@dataclass(frozen=True, slots=True)
class Log:
    """Offset 0 is the first letter. `A`: a message of table A; `a`: one that cannot be decoded; `!`: one without a
    table header; `-`: a hole."""

    text: str

    def __len__(self) -> int:
        return len(self.text)

    def table(self, offset: int) -> int | None:
        letter = self.text[offset]
        return ord(letter.upper()) - ord("A") + 1 if letter.isalpha() else None

    def good(self, offset: int) -> bool:
        return self.text[offset].isupper()

    @property
    def tables(self) -> tuple[int, ...]:
        return _tables(self)

    def rows(self, table: int, begin: int, end: int) -> Rows:
        """The good messages of the table in [begin, end]."""
        return _rows(self, table, begin, end)


@cache
def _tables(log: Log) -> tuple[int, ...]:
    return tuple(sorted({t for o in range(len(log)) if (t := log.table(o)) is not None}))


@cache
def _rows(log: Log, table: int, begin: int, end: int) -> Rows:
    return tuple(o for o in range(begin, end + 1) if log.table(o) == table and log.good(o))


def block_of(rows: Rows) -> SealedBlock:
    return SealedBlock(rows[0], rows[-1], len(rows), REVISION, crc32(repr(rows).encode()))


def rebuild(log: Log, table: int, intent: InFlight) -> SealedBlock:
    return block_of(log.rows(table, intent.begin, intent.end))


@dataclass(slots=True)
class _Found:
    takes: bool
    lowest: int
    seen: int = 0
    rows: Rows = ()
    dead: Rows = ()
    cursor: int | None = None


def scan(log: Log, request: ScanRequest, stop: int, short: int | None) -> tuple[ScanReport, Rows]:
    """What a worker reports of [request.start, stop), and the offsets it dead-lettered. The block of table `short` ends
    after one message, as if it had met its limit."""
    resumed = dict(request.resume)
    found: dict[int, _Found] = {}
    headless: list[int] = []
    for offset in range(request.start, stop):
        table, new = log.table(offset), offset >= request.position
        if table is None:
            if new and log.text[offset] == "!":
                headless.append(offset)
            continue
        if not new and table not in resumed:
            continue
        if table not in found:
            found[table] = _Found(table not in request.exclude, resumed.get(table, request.position))
        _take(found[table], log, offset, new, limit=1 if table == short else len(log))
    tables = tuple(
        TableScan(t, f.seen, block_of(f.rows) if f.rows else None, len(f.dead), f.cursor)
        for t, f in sorted(found.items())
    )
    dead = tuple(headless) + tuple(o for f in found.values() for o in f.dead)
    return ScanReport(request.start, stop, tables, len(headless)), dead


def _take(table: _Found, log: Log, offset: int, new: bool, limit: int) -> None:
    if offset < table.lowest:
        return
    table.seen += new
    if table.cursor is not None or not table.takes or (log.good(offset) and len(table.rows) == limit):
        table.cursor = offset if table.cursor is None else table.cursor
    elif log.good(offset):
        table.rows += (offset,)
    else:
        table.dead += (offset,)
