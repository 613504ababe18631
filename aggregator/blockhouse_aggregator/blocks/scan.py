"""A range of a stream becomes sealed blocks: the loop every message passes through once.

The range ends at the first limit reached; what was read beyond its end is kept for the next scan, which usually
begins there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from blockhouse.config.pipeline import MAX_ROWS, Blocks
from blockhouse.errors import Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder, EncodedBlock
from blockhouse_aggregator.blocks.collecting import Catalog, DeadLetter, Limits, Message, TableRound
from blockhouse_aggregator.blocks.routing import Misrouted, Router
from blockhouse_aggregator.gate.messages import (
    BlockKey,
    BuiltBlock,
    Rebuilt,
    Replay,
    Scan,
    Sealed,
    TableReport,
)

POLL = 0.25
"""Seconds one read waits at most, so that a waiting scan can be told to finish."""
BATCH = 1000


class Reader(Protocol):
    """A positioned reader of one stream; `kafka.fetch.StreamReader` is the real one."""

    @property
    def position(self) -> int: ...
    @property
    def log_end(self) -> int: ...
    def seek(self, offset: int, leader_epoch: int | None = None) -> None: ...
    def read(self, max_messages: int, timeout: float) -> Sequence[Message]: ...


class Scanner:
    """Reads one stream for one lease after another; keeps the reader's place between scans."""

    def __init__(
        self,
        stream: StreamId,
        reader: Reader,
        *,
        blocks: Blocks,
        database: str,
        bury: Callable[[Sequence[DeadLetter]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._reader = reader
        self._blocks = blocks
        self._router = Router(database)
        self._bury = bury
        self._clock = clock
        self._unused: list[Message] = []
        self._next = -1
        self.catalog = Catalog()

    def scan(self, order: Scan, finished: Callable[[], bool]) -> tuple[Sealed, list[EncodedBlock]]:
        """Carry out the order. Dead letters are acknowledged by the broker before this returns."""
        started = self._clock()
        self.catalog.learn(order.catalog)
        scan_round = _Round(self, order)
        stop = self._collect(scan_round, order, finished, started)
        blocks, reports, dead = scan_round.seal()
        if dead:
            self._bury(dead)
        sealed = Sealed(
            round=order.round,
            start=order.start,
            stop=stop,
            tables=reports,
            headless=scan_round.headless,
            leader_epoch=-1,
            log_end=self._reader.log_end,
            elapsed=self._clock() - started,
        )
        return sealed, blocks

    def _collect(self, scan_round: _Round, order: Scan, finished: Callable[[], bool], started: float) -> int:
        """Read until a limit; returns the end of the range (exclusive, trailing holes included)."""
        self._seek(order.start, order.leader_epoch)
        idle_until = started + order.patience
        hard_until = started + order.max_seconds
        while True:
            now = self._clock()
            until = min(scan_round.deadline if scan_round.busy else idle_until, hard_until)
            if finished() or now >= until:
                return self._place(order)
            for message in (batch := self._read(until - now)):
                if order.stop is not None and message.offset() >= order.stop:
                    return self._put_back(batch, message, order.stop)
                verdict = scan_round.add(message, now)
                if verdict is _REFUSED:
                    return self._put_back(batch, message, message.offset())
                if verdict is _FULL:
                    return self._put_back(batch, message, message.offset() + 1)
            if order.stop is not None and self._reader.position >= order.stop:
                return self._place(order)

    def _place(self, order: Scan) -> int:
        """Where the range ends when no message ends it: the reader's position, holes included."""
        self._next = max(self._reader.position, order.start)
        return self._next if order.stop is None else min(self._next, order.stop)

    def _seek(self, offset: int, leader_epoch: int = -1) -> None:
        if offset == self._next:
            return
        self.lose_place()
        self._reader.seek(offset, leader_epoch if leader_epoch >= 0 else None)
        self._next = offset

    def lose_place(self) -> None:
        """Forget where the reader stands: the next order seeks."""
        self._next = -1
        self._unused.clear()

    def _read(self, wait: float) -> Sequence[Message]:
        if self._unused:
            batch, self._unused = self._unused, []
            return batch
        return self._reader.read(BATCH, max(0.0, min(POLL, wait)))

    def _put_back(self, batch: Sequence[Message], message: Message, end: int) -> int:
        """Keep what lies at or after `end` for the next scan."""
        index = next(i for i, m in enumerate(batch) if m is message)
        self._unused = [m for m in batch[index:] if m.offset() >= end]
        self._next = end
        return end

    def replay(self, order: Replay, finished: Callable[[], bool]) -> tuple[Rebuilt, list[Built]]:
        """Rebuild in-flight blocks in one pass. A block whose first or last message is gone is reported as missing."""
        self.catalog.learn(order.catalog)
        wanted = {b.table: b for b in order.blocks}
        builders = {t: self.catalog.builder(t, b.revision, self._stream) for t, b in wanted.items()}
        end = max(b.end for b in order.blocks)
        self._next = -1
        self._seek(min(b.begin for b in order.blocks))
        for message in self._until(end, finished):
            route = self._router.route(message.headers())
            block, value = wanted.get(route.table), message.value()
            builder = builders.get(route.table)
            if isinstance(route, Misrouted) or block is None or builder is None or value is None:
                continue
            if block.begin <= message.offset() <= block.end:
                builder.append(message.offset(), value, message.timestamp()[1])
        self._next = -1  # messages after `end` were read and dropped: the next scan has to seek
        built: list[Built] = []
        missing: list[BlockKey] = []
        for table, wish in wanted.items():
            builder = builders[table]
            sealed = builder.seal(MAX_ROWS).block if builder is not None else None
            if builder is None or sealed is None or (sealed.begin, sealed.end) != (wish.begin, wish.end):
                missing.append(BlockKey(table=table, begin=wish.begin, end=wish.end))
            else:
                built.append((sealed, builder))
        return Rebuilt(
            round=order.round, blocks=tuple(describe(block) for block, _ in built), missing=tuple(missing)
        ), built

    def _until(self, end: int, finished: Callable[[], bool]) -> Iterable[Message]:
        """Every message up to and including offset `end`. Raises Retryable when told to finish before that."""
        while self._reader.position <= end:
            if finished():
                raise Retryable(
                    f"{self._stream}: the replay up to offset {end} was interrupted at {self._reader.position}"
                )
            for message in self._reader.read(BATCH, POLL):
                if message.offset() > end:
                    return
                yield message


Built = tuple[EncodedBlock, BlockBuilder]
"""A rebuilt block with its builder, which can still tell its rows apart should provenance be asked."""

_TAKEN, _FULL, _REFUSED = object(), object(), object()


class _Round:
    """The tables of one scan."""

    def __init__(self, scanner: Scanner, order: Scan) -> None:
        self._scanner = scanner
        self._order = order
        self._tables: dict[str, TableRound] = {}
        self._excluded = frozenset(order.exclude)
        self._dead_tables = frozenset(order.dead_tables)
        self._entries = order.entries
        self._size = 0
        self._blocks = scanner._blocks
        self.headless = 0
        self._dead: list[DeadLetter] = []
        self.busy = False
        self.deadline = float("inf")
        for table, cursor in order.resume.items():
            self._open(table, lowest=cursor)

    def add(self, message: Message, now: float) -> object:
        """Put one message where it belongs."""
        offset = message.offset()
        new = offset >= self._order.position
        route = self._scanner._router.route(message.headers())
        if not route.table:
            if new:
                self.headless += 1
                self._dead.append(DeadLetter(message, "NoTableHeader", ""))
            return _TAKEN
        table = self._tables.get(route.table)
        if table is None:
            if not new:
                return _TAKEN
            if self._entries <= 0 and route.table not in self._excluded:
                return _REFUSED
            table = self._open(route.table, lowest=self._order.position)
        if offset < table.lowest:
            return _TAKEN
        table.seen += new
        if route.table in self._dead_tables:
            table.reject(offset, message, "UnknownTable")
            return _TAKEN
        if not table.taking:
            table.lag(offset)
            return _TAKEN
        value = message.value()
        if isinstance(route, Misrouted) or value is None:
            table.reject(offset, message, route.reason if isinstance(route, Misrouted) else "NullValue")
            return _TAKEN
        if route.revision > self._scanner.catalog.current_revision(route.table):
            table.lag(offset, route.revision)
            return _TAKEN
        if not self.busy or now + table.limits.max_age < self.deadline:
            self.busy = True
            self.deadline = min(self.deadline, now + table.limits.max_age)
        self._size += len(value)
        full = table.take(offset, message, value)
        return _FULL if full or self._size >= self._blocks.max_bytes_per_round else _TAKEN

    def _open(self, name: str, lowest: int) -> TableRound:
        catalog, order = self._scanner.catalog, self._order
        override = self._blocks.tables.get(name)
        limits = (
            Limits(override.max_bytes, override.max_rows, max(override.max_age, order.max_age))
            if override
            else Limits(order.max_bytes, order.max_rows, max(self._blocks.max_age, order.max_age))
        )
        takes = name not in self._excluded
        builder = catalog.builder(name, None, self._scanner._stream) if takes else None
        table = self._tables[name] = TableRound(name, limits, lowest=lowest, builder=builder)
        if takes and name not in order.resume:
            self._entries -= 1
        return table

    def seal(self) -> tuple[list[EncodedBlock], tuple[TableReport, ...], list[DeadLetter]]:
        blocks: list[EncodedBlock] = []
        reports: list[TableReport] = []
        dead = list(self._dead)
        for name, table in sorted(self._tables.items()):
            block, letters = table.seal(MAX_ROWS)
            dead.extend(letters)
            if block is not None:
                blocks.append(block)
            report = TableReport(
                table=name,
                seen=table.seen,
                block=describe(block) if block is not None else None,
                dead=len(letters),
                cursor=table.cursor,
                waits_for=table.waits_for,
            )
            reports.append(report)
        return blocks, tuple(reports), dead


def describe(block: EncodedBlock) -> BuiltBlock:
    """What the driver is told of a block; the bytes stay here."""
    return BuiltBlock(
        table=block.table,
        begin=block.begin,
        end=block.end,
        messages=block.messages,
        rows=block.rows,
        size=len(block.body),
        revision=block.revision,
        crc=block.crc,
        newest_ms=block.max_timestamp_ms,
    )
