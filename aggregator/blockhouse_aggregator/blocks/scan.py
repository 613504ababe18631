"""A range of a stream becomes sealed blocks: the loop every message passes through once.

The range ends at the first limit reached; what was read beyond its end is kept for the next scan, which usually
begins there.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import itemgetter, methodcaller
from typing import Protocol

from blockhouse.config.pipeline import MAX_ROWS, Blocks
from blockhouse.errors import Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder, EncodedBlock
from blockhouse_aggregator.blocks.collecting import Catalog, DeadLetter, Message, counted
from blockhouse_aggregator.blocks.round import Round, describe
from blockhouse_aggregator.blocks.routing import Misrouted, Router
from blockhouse_aggregator.faults.model import Point
from blockhouse_aggregator.faults.strike import strike_at
from blockhouse_aggregator.gate.messages import (
    BlockKey,
    Rebuilt,
    Replay,
    ReplayBlock,
    Scan,
    Sealed,
)
from blockhouse_aggregator.kafka.headers import headers_of
from blockhouse_aggregator.wire.filling import Evaluate
from blockhouse_aggregator.wire.formats import Format, MakeDecoder, decoder

POLL = 0.25
"""Seconds one read waits at most, so that a waiting scan can be ended."""
ANSWER = 0.5
"""Seconds in which a broker that is asked for what is there has answered."""
BATCH = 1000
REMEMBERED = 100
"""Ends of scans that are remembered: a table that was left behind by more has waited long enough."""

Isolate = Callable[[], AbstractContextManager[MakeDecoder]]
"""Decoders that survive what they are given, for one order; `isolation.careful.careful_decoders` is the real one."""


class Reader(Protocol):
    """A positioned reader of one stream; `kafka.fetch.StreamReader` is the real one."""

    @property
    def position(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def log_end(self) -> int: ...
    def seek(self, offset: int, leader_epoch: int | None = None) -> None:
        """The next `read` begins at `offset`; `leader_epoch` is that of the message before, None if unknown."""
        ...

    def read(self, max_messages: int, timeout: float) -> Sequence[Message]:
        """At most `max_messages`, in order of offsets, within `timeout` seconds; empty at the end. Raises
        BlockhouseError."""
        ...


class Scanner:
    """Reads one stream for one lease after another; keeps the reader's place between scans."""

    def __init__(
        self,
        stream: StreamId,
        reader: Reader,
        *,
        blocks: Blocks,
        database: str,
        default_format: str = Format.ROWS,
        bury: Callable[[Sequence[DeadLetter]], None],
        evaluate: Evaluate | None = None,
        isolate: Isolate = lambda: nullcontext(decoder),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._reader = reader
        self._blocks = blocks
        self._router = Router(database, Format(default_format))
        self._bury = bury
        self._isolate = isolate
        self._clock = clock
        self._unused: list[Message] = []
        self._next = -1
        self._ends: list[tuple[int, float]] = []
        """What new messages were read up to, and when that scan ended: what follows came later. In offset order."""
        self.catalog = Catalog(evaluate=evaluate)

    def scan(self, order: Scan, finished: Callable[[], bool]) -> tuple[Sealed, list[EncodedBlock]]:
        """Carry out the order. Dead letters are acknowledged by the broker before this returns."""
        with self._decoding(careful=order.careful):
            return self._scan(order, finished)

    @contextmanager
    def _decoding(self, *, careful: bool) -> Iterator[None]:
        """The decoders made inside are those of `isolate` if workers have died on the order."""
        with self._isolate() if careful else nullcontext(decoder) as make:
            self.catalog.make = make
            try:
                yield
            finally:
                self.catalog.make = decoder

    def _scan(self, order: Scan, finished: Callable[[], bool]) -> tuple[Sealed, list[EncodedBlock]]:
        started = self._clock()
        self.catalog.learn(order.catalog)
        scan_round = Round(order, stream=self._stream, blocks=self._blocks, catalog=self.catalog, router=self._router)
        stop = self._collect(scan_round, order, finished, started)
        if order.stop is None:
            self._remember(self._next, self._clock())
        strike_at(Point.DURING_FETCH, order.faults)
        blocks, reports, dead = scan_round.seal()
        if dead:
            self._bury(dead)
        sealed = Sealed(
            round=order.round,
            start=order.start,
            stop=stop,
            tables=reports,
            headless=scan_round.headless,
            leader_epoch=self._epoch_at(stop),
            log_end=self._reader.log_end,
            elapsed=self._clock() - started,
            letters=counted(dead),
        )
        return sealed, blocks

    def _collect(self, scan_round: Round, order: Scan, finished: Callable[[], bool], started: float) -> int:
        """Read until a limit; returns the end of the range (exclusive, trailing holes included)."""
        if not self._ends or order.start > self._ends[-1][0]:
            self._remember(order.start, started)
        waiting, caught_up = False, -1
        self._seek(order.start, order.leader_epoch)
        idle_until = started + order.patience
        hard_until = started + order.max_seconds
        while True:
            now = self._clock()
            until = min(scan_round.deadline if scan_round.busy else idle_until, hard_until)
            if finished() or now >= hard_until:
                return self._place(order)
            more = self._reader.position < caught_up  # is there already, and only has to be fetched
            batch = self._read(max(until - now, POLL if more else 0.0) if waiting else 0.0)
            waiting = True
            # What is there at once may have come right after the last scan ended, while its blocks were inserted; what
            # is read again was there before.
            old = caught_up < 0 and now - started < ANSWER
            arrived = self._since(batch[0].offset()) if batch and (old or self._passed(batch[0])) else now
            if batch and caught_up < 0:
                caught_up = self._reader.log_end  # as it is now: what arrives while it is read is for the next round
            if not batch and now >= until:
                return self._place(order)  # of age, and all that is there has been read
            inside = _below(batch, order.stop)
            count = scan_round.add(inside, arrived)
            if scan_round.full:
                return self._put_back(batch[count:], inside[count - 1].offset() + 1)
            if count < len(inside):
                return self._put_back(batch[count:], inside[count].offset())
            if order.stop is not None and (len(inside) < len(batch) or self._reader.position >= order.stop):
                return self._put_back(batch[count:], order.stop)
            if order.seal_at_end and scan_round.busy and self._reader.position >= caught_up:
                return self._place(order)  # it has caught up: nothing is gained by waiting

    def _remember(self, end: int, now: float) -> None:
        last = self._ends[-1][0] if self._ends else -1
        if end == last:
            self._ends.pop()
        if end >= last:
            self._ends = [*self._ends[1 - REMEMBERED :], (end, now)]

    def _passed(self, message: Message) -> bool:
        return message.offset() < self._ends[-1][0]

    def _since(self, offset: int) -> float:
        """The earliest moment at which the message can have come, as far as is known: what a table was left behind with
        while its block was inserted has aged since then, not since the last scan."""
        return self._ends[max(0, bisect_right(self._ends, offset, key=itemgetter(0)) - 1)][1]

    def _place(self, order: Scan) -> int:
        """Where the range ends when no message ends it: the reader's position, holes included.

        A scan that is ended before it has read finds what the one before it has put back.
        """
        position = self._unused[0].offset() if self._unused else self._reader.position
        self._next = max(position, order.start)
        return self._next if order.stop is None else min(self._next, order.stop)

    def _epoch_at(self, stop: int) -> int:
        """The leader epoch of the range's end, by which a reader that continues there detects a cut log. That
        of the message that follows serves as well: in a log that was not cut, its epoch reaches beyond `stop`."""
        if self._unused:
            epoch = self._unused[0].leader_epoch()
            return -1 if epoch is None else epoch
        return self._reader.epoch if stop == self._reader.position else -1

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

    def _put_back(self, rest: Sequence[Message], end: int) -> int:
        """End the range at `end` and keep `rest`, which begins at or after it, for the next scan."""
        self._unused = list(rest)
        self._next = end
        return end

    def replay(self, order: Replay, finished: Callable[[], bool]) -> tuple[Rebuilt, list[Built]]:
        """Rebuild in-flight blocks in one pass. A block whose first or last message is gone is reported as missing."""
        with self._decoding(careful=order.careful):
            return self._replay(order, finished)

    def _replay(self, order: Replay, finished: Callable[[], bool]) -> tuple[Rebuilt, list[Built]]:
        self.catalog.learn(order.catalog)
        orders = {b.table: b for b in order.blocks}
        builders = {table: self._builder(block, order.topic_id) for table, block in orders.items()}
        end = max(b.end for b in order.blocks)
        self._next = -1
        self._seek(min(b.begin for b in order.blocks))
        for message in self._until(end, finished):
            route = self._router.route(headers_of(message))
            block, value = orders.get(route.table), message.value()
            builder = builders.get(route.table)
            if isinstance(route, Misrouted) or block is None or builder is None or value is None:
                continue
            if block.begin <= message.offset() <= block.end:
                builder.append(message.offset(), value, message.timestamp()[1], route.form)
        self._next = -1  # messages after `end` were read and dropped: the next scan has to seek
        strike_at(Point.DURING_REPLAY, order.faults)
        built: list[Built] = []
        missing: list[BlockKey] = []
        for table, wish in orders.items():
            builder = builders[table]
            sealed = builder.seal(MAX_ROWS).block if builder is not None else None
            if builder is None or sealed is None or (sealed.begin, sealed.end) != (wish.begin, wish.end):
                missing.append(BlockKey(table=table, begin=wish.begin, end=wish.end))
            else:
                built.append((sealed, builder))
        return Rebuilt(
            round=order.round, blocks=tuple(describe(block) for block, _ in built), missing=tuple(missing)
        ), built

    def _builder(self, block: ReplayBlock, topic_id: str) -> BlockBuilder | None:
        """None when it cannot be built, as after a return to an older version: the others are not to wait for it."""
        try:
            return self.catalog.builder(block.table, block.revision, self._stream, topic_id, foreign=block.foreign)
        except Permanent:
            return None

    def _until(self, end: int, finished: Callable[[], bool]) -> Iterable[Message]:
        """Every message up to and including offset `end`. Raises Retryable when it is ended before that."""
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
"""A rebuilt block with its builder, which can still separate its rows should provenance be asked."""


def _below(messages: Sequence[Message], stop: int | None) -> Sequence[Message]:
    """The messages below offset `stop`, or all without one."""
    if stop is None or not messages or messages[-1].offset() < stop:
        return messages
    return messages[: bisect_left(messages, stop, key=methodcaller("offset"))]
