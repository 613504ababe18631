"""I2 to I6 of `docs/protocol.md` for what is committed, in one place; each check returns what it finds, in words.

The codec asks before it writes and after it reads, the driver before each commit, property tests and the model of every
commit they see. (The verifier has checks of its own on purpose: it must not share a mistake with what it watches.)
Nothing here changes or repairs anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from blockhouse.metadata.model import Metadata, TableEntry, Window

LIMIT = 1 << 63
"""Every number is below it."""


def violations(metadata: Metadata) -> list[str]:
    """What is wrong with one metadata by itself: its numbers, the window's identity, order and sense of its entries."""
    w = metadata.window
    numbers = [metadata.seq, metadata.intent_ms, metadata.leader_epoch + 1, metadata.position]
    found: list[str] = []
    if not _in_range([*numbers, w.reference, w.sealed, w.dead, w.holes]):
        found.append(f"a number is negative or not below 2^63: {metadata}")
    total = w.reference + w.sealed + w.dead + w.holes + metadata.pending
    if total != metadata.position:
        found.append(f"I4: reference + sealed + dead + holes + pending is {total}, but P is {metadata.position}")
    previous = 0
    for entry in metadata.tables:
        if entry.table <= previous:
            found.append(f"I2: table {entry.table} after table {previous}: ids must be positive and rise")
        previous = entry.table
        found += [f"{text}, table {entry.table}" for text in _entry_violations(entry, metadata.position)]
    return found


def _entry_violations(entry: TableEntry, position: int) -> Iterable[str]:
    block, cursor = entry.in_flight, entry.cursor
    if block is None and cursor is None:
        yield "an entry that is neither in flight nor lagging"
    if block is not None:
        if not _in_range([entry.table, block.begin, block.revision, block.intent_ms]) or not 0 <= block.crc < 1 << 32:
            yield f"a number is out of range: {block}"
        if not block.begin <= block.end < position:
            yield f"I5: block [{block.begin}, {block.end}] is empty or does not lie below P {position}"
        elif not 1 <= block.messages <= block.end - block.begin + 1:
            yield f"I4: {block.messages} messages do not fit block [{block.begin}, {block.end}]"
    if cursor is None:
        if entry.pending:
            yield f"I4: {entry.pending} messages are pending, but it does not lag"
        return
    if not _in_range([entry.table, cursor, entry.pending]):
        yield f"a number is out of range: {entry}"
    if cursor > position:
        yield f"I5: cursor {cursor} is beyond P {position}"
    if block is not None and cursor <= block.end:
        yield f"I3: cursor {cursor} is inside the block up to {block.end}"


def _in_range(numbers: list[int]) -> bool:
    return all(0 <= number < LIMIT for number in numbers)


def succession_violations(
    before: Metadata | None, after: Metadata, recut: Mapping[int, int] | None = None
) -> list[str]:
    """What a successor may not do: go backward, overlap, forget a table that lagged, or skip a number.

    The blocks of the tables in `recut` were abandoned in between, by an audited decision; its numbers are the dead
    messages in their ranges. `before` is None when nothing of ours was committed.
    """
    if before is None:
        return []
    before = _without(before, recut or {})
    found: list[str] = []
    if after.seq != before.seq + 1:
        found.append(f"I6: seq {after.seq} after {before.seq}")
    if after.position < before.position:
        found.append(f"I5: P went back from {before.position} to {after.position}")
    found += _window_violations(before, after)
    old = {entry.table: entry for entry in before.tables}
    for entry in after.tables:
        was = old.get(entry.table)
        lowest = before.position
        if was is not None and was.in_flight is not None and was.in_flight == entry.in_flight:
            continue
        if was is not None and was.cursor is not None:
            lowest = was.cursor
        if entry.in_flight is not None and entry.in_flight.begin < lowest:
            found.append(f"I3: table {entry.table}: block from {entry.in_flight.begin} overlaps what is below {lowest}")
        if entry.cursor is not None and entry.cursor < lowest:
            found.append(f"I5: table {entry.table}: cursor {entry.cursor} fell below {lowest}")
    return found


def _without(metadata: Metadata, recut: Mapping[int, int]) -> Metadata:
    """The metadata as if the in-flight blocks of these tables had never been sealed."""
    tables, taken, dead = [], 0, 0
    for entry in metadata.tables:
        block = entry.in_flight
        if entry.table in recut and block is not None:
            taken, dead = taken + block.messages, dead + recut[entry.table]
            pending = entry.pending + block.messages + recut[entry.table]
            entry = TableEntry(entry.table, None, block.begin, pending)  # noqa: PLW2901
        tables.append(entry)
    window = metadata.window
    window = replace(window, sealed=window.sealed - taken, dead=window.dead - min(dead, window.dead))
    return replace(metadata, tables=tuple(tables), window=window)


def _window_violations(before: Metadata, after: Metadata) -> list[str]:
    """Counts only grow, or begin again when nothing is in flight: else a message could be counted away."""
    old, new = before.window, after.window
    if new == Window(reference=after.position - after.pending):
        open_blocks = any(entry.in_flight is not None for entry in after.tables)
        return ["I4: the window was closed with a block in flight"] if open_blocks and new != old else []
    if new.reference != old.reference:
        return [f"I4: reference moved from {old.reference} to {new.reference} without closing the window"]
    if new.sealed < old.sealed or new.dead < old.dead or new.holes < old.holes:
        return [f"I4: a count of the window fell: {old} to {new}"]
    return []
