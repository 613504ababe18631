"""The messages of one scan, sorted into tables: what goes into a block, what lags, what is dead, and when it is enough.

Messages are handled in runs with equal headers, as producers send them: a message of ten rows costs a microsecond of
Python, not ten. How a run was cut must never show in a block.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import methodcaller

from blockhouse.config.pipeline import MAX_ROWS, Blocks
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import EncodedBlock
from blockhouse_aggregator.blocks.collecting import MAX_DECODED, Catalog, DeadLetter, Limits, Message, TableRound
from blockhouse_aggregator.blocks.routing import Misrouted, Route, Router
from blockhouse_aggregator.gate.messages import BuiltBlock, Scan, TableReport
from blockhouse_aggregator.kafka.headers import runs

_offset, _value = methodcaller("offset"), methodcaller("value")


class Round:
    """The tables of one scan. `busy` from the first message that goes into a block, which must be sealed at `deadline`;
    `full` when a limit was reached."""

    def __init__(self, order: Scan, *, stream: StreamId, blocks: Blocks, catalog: Catalog, router: Router) -> None:
        self._order = order
        self._stream = stream
        self._blocks = blocks
        self._catalog = catalog
        self._router = router
        self._tables: dict[str, TableRound] = {}
        self._excluded = frozenset(order.exclude)
        self._entries = order.entries
        self._size = 0
        self._decoded = 0
        self._dead: list[DeadLetter] = []
        self.headless = 0
        self.busy = False
        self.full = False
        self.deadline = float("inf")
        for table, cursor in order.resume.items():
            self._open(table, lowest=cursor)

    def add(self, messages: Sequence[Message], arrived: float) -> int:
        """Put messages, in offset order, where they belong; returns how many of them, from the first, the round holds.

        `arrived` is the earliest moment at which the first of them can have come: its block ages from then on.
        Fewer than all when it is `full`, or when the next one is of a table there is no room for.
        """
        held = 0
        for headers, run in runs(messages):
            count = self._add_run(self._router.route(headers), run, arrived)
            held += count
            if count < len(run) or self.full:
                break
        return held

    def _add_run(self, route: Route | Misrouted, run: Sequence[Message], arrived: float) -> int:
        """`add` for messages with equal headers."""
        old = bisect_left(run, self._order.position, key=_offset)
        if isinstance(route, Misrouted) and not route.table:
            self.headless += len(run) - old
            self._dead += [DeadLetter(message, route.reason, "") for message in run[old:]]
            return len(run)
        table = self._tables.get(route.table)
        if table is None:
            if old == len(run):
                return len(run)
            if self._entries <= 0 and route.table not in self._excluded:
                return old
            table = self._open(route.table, lowest=self._order.position)
        count = skipped = bisect_left(run, table.lowest, key=_offset)
        while count < len(run) and not self.full:
            count += self._put(table, route, run[count:], arrived)
        table.seen += max(0, count - max(old, skipped))
        return count

    def _put(self, table: TableRound, route: Route | Misrouted, run: Sequence[Message], arrived: float) -> int:
        """Put at least the first message of a run where it belongs; returns how many were put."""
        if (reason := self._order.dead_tables.get(table.name)) is not None:
            return table.reject(run, reason)
        if not table.taking:
            table.lag(run[0].offset())
            return len(run)
        if isinstance(route, Misrouted):
            return table.reject(run, route.reason)
        values = list(map(_value, run))
        filled = [value for value in values if value is not None]
        if len(filled) < len(run):
            null = values.index(None)
            if null == 0:
                return table.reject(run[:1], "NullValue")
            run, filled = run[:null], filled[:null]
        if route.revision > self._catalog.current_revision(table.name):
            if expired := bisect_left(run, self._order.expiring, key=_offset):
                return table.reject(run[:expired], "UnknownRevision")
            table.lag(run[0].offset(), route.revision)
            return len(run)
        self.busy = True
        self.deadline = min(self.deadline, arrived + table.limits.max_age)
        before, decoded = table.size, table.decoded_bytes
        count = table.take(run, filled, route.form, room=self._blocks.max_bytes_per_round - self._size)
        self._size += table.size - before
        self._decoded += table.decoded_bytes - decoded
        most = self._blocks.max_bytes_per_round
        self.full = table.full or self._size >= most or self._decoded >= MAX_DECODED + most
        return count

    def _open(self, name: str, lowest: int) -> TableRound:
        order = self._order
        override = self._blocks.tables.get(name)
        limits = (
            Limits(override.max_bytes, override.max_rows, max(override.max_age, order.max_age))
            if override
            else Limits(order.max_bytes, order.max_rows, max(self._blocks.max_age, order.max_age))
        )
        takes = name not in self._excluded
        builder = self._catalog.builder(name, None, self._stream, order.topic_id) if takes else None
        table = self._tables[name] = TableRound(name, limits, lowest=lowest, builder=builder)
        if takes and name not in order.resume:
            self._entries -= 1
        return table

    def seal(self) -> tuple[list[EncodedBlock], tuple[TableReport, ...], list[DeadLetter]]:
        """The blocks, what is reported to the driver of every table, and the dead letters."""
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
    """What is reported to the driver of a block; the bytes stay here."""
    return BuiltBlock(
        table=block.table,
        begin=block.begin,
        end=block.end,
        messages=block.messages,
        rows=block.rows,
        size=len(block.body),
        revision=block.revision,
        crc=block.crc,
        oldest_ms=block.min_timestamp_ms,
    )
