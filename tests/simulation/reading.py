"""What a worker reads of a stream: scans and rebuilt blocks, in the gate's messages. No time passes here."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from blockhouse_aggregator.gate.messages import BlockKey, BuiltBlock, Replay, Scan, Sealed, TableReport
from tests.simulation.logs import BAD, HEADLESS, HOLE, Content, Message


@dataclass(frozen=True, slots=True)
class Bytes:
    """A built block: its storable messages. The crc stands for the bytes, which no reader needs."""

    table: int
    messages: tuple[Message, ...]

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(offset for offset, _, _ in self.messages)

    def describe(self, name: str, stream: str, now_ms: int) -> BuiltBlock:
        return BuiltBlock(
            table=name,
            begin=self.messages[0][0],
            end=self.messages[-1][0],
            messages=len(self.messages),
            rows=len(self.messages),
            size=len(self.messages) * 100,
            revision=1,
            crc=self.crc(stream),
            oldest_ms=now_ms,
        )

    def crc(self, stream: str) -> int:
        return zlib.crc32(f"{stream} {self.table} {self.messages}".encode())


@dataclass(slots=True)
class _Reading:
    """One table in one scan."""

    lowest: int
    taking: bool
    seen: int = 0
    cursor: int | None = None
    taken: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Found:
    """A sealed scan with the blocks that belong to it and the offsets of its dead letters."""

    sealed: Sealed
    blocks: dict[BlockKey, Bytes]
    dead: tuple[Message, ...]


def waits_for_more(log: Content, order: Scan, end: int, most: int) -> bool:
    """True while the scan would find nothing to put into a block below `end`."""
    return not any(True for _ in _worth(log, order, min(end, order.start + most)))


def _worth(log: Content, order: Scan, end: int) -> Iterable[int]:
    return (offset for offset in range(order.start, end) if log.kinds[offset] != HOLE)


def scan(
    log: Content, order: Scan, end: int, *, stream: str, most: int, cut: int, numbers: dict[str, int], known: set[str],
    now_ms: int,
) -> Found:  # fmt: skip
    """Seal [order.start, end), or less when a block holds `most` messages. With `cut` above 0 one block ends there.
    Only messages of `known` tables can be encoded."""
    names = {number: name for name, number in numbers.items()}
    tables = {numbers[name]: _Reading(cursor, True) for name, cursor in order.resume.items()}
    excluded = {numbers[name] for name in order.exclude}
    entries, headless, dead, stop = order.entries, 0, [], order.start
    for offset in range(order.start, end):
        kind = log.kinds[offset]
        new = offset >= order.position
        if kind == HEADLESS and new:
            headless += 1
            dead.append(offset)
        elif kind not in (HOLE, HEADLESS):
            number = kind % BAD
            table = tables.get(number)
            if table is None and new:
                if number not in excluded:
                    if entries <= 0:
                        break
                    entries -= 1
                taking = number not in excluded and names[number] in known
                table = tables[number] = _Reading(order.position, taking)
            if table is not None and offset >= table.lowest:
                table.seen += new
                _put(table, offset, kind)
        stop = offset + 1
        if any(len(table.taken) >= most for table in tables.values()):
            break
    return _seal(log, order, stop, tables, stream, names, headless, dead, cut, now_ms)


def _put(table: _Reading, offset: int, kind: int) -> None:
    if not table.taking or table.cursor is not None:
        table.cursor = offset if table.cursor is None else table.cursor
    elif kind >= BAD:
        table.dead.append(offset)
    else:
        table.taken.append(offset)


def _seal(
    log: Content, order: Scan, stop: int, tables: dict[int, _Reading], stream: str, names: dict[int, str],
    headless: int, dead: list[int], cut: int, now_ms: int,
) -> Found:  # fmt: skip
    blocks: dict[BlockKey, Bytes] = {}
    reports = []
    for number, table in sorted(tables.items()):
        if cut and len(table.taken) > cut:
            table.cursor = table.taken[cut] if table.cursor is None else min(table.cursor, table.taken[cut])
            table.taken = table.taken[:cut]
            table.dead = [offset for offset in table.dead if offset < table.cursor]
        built = None
        if table.taken:
            content = Bytes(number, tuple(map(log.message, table.taken)))
            built = content.describe(names[number], stream, now_ms)
            blocks[BlockKey(table=built.table, begin=built.begin, end=built.end)] = content
        dead += table.dead
        reports.append(
            TableReport(table=names[number], seen=table.seen, block=built, dead=len(table.dead), cursor=table.cursor)
        )
    sealed = Sealed(
        round=order.round,
        start=order.start,
        stop=stop,
        tables=tuple(reports),
        headless=headless,
        leader_epoch=_epoch(log, order, stop),
        log_end=log.end,
        elapsed=0.0,
    )
    return Found(sealed, blocks, tuple(map(log.message, dead)))


def _epoch(log: Content, order: Scan, stop: int) -> int:
    """As `blocks.scan`: that of the message that follows, or of the reader's position if the range ends there."""
    following = next((offset for offset in range(stop, log.end) if log.kinds[offset] != HOLE), None)
    if following is not None:
        return log.epoch_of(following)
    if stop < log.end:
        return -1
    return log.epoch_at(stop) if stop > order.start else order.leader_epoch


def rebuild(
    log: Content, order: Replay, *, stream: str, numbers: dict[str, int], known: set[str], now_ms: int
) -> dict[BlockKey, tuple[Bytes, BuiltBlock]]:
    """Every block of `known` tables that the log still holds in full."""
    found = {}
    for wish in (block for block in order.blocks if block.table in known):
        content = Bytes(numbers[wish.table], log.good(numbers[wish.table], wish.begin, wish.end + 1))
        if content.messages and (content.messages[0][0], content.messages[-1][0]) == (wish.begin, wish.end):
            key = BlockKey(table=wish.table, begin=wish.begin, end=wish.end)
            found[key] = (content, content.describe(wish.table, stream, now_ms))
    return found
