"""I1-I7 of `docs/protocol.md` as checks. Each returns the violations it finds, in words; nothing here changes anything.

Used by property tests, by the model and, where it is cheap, by the running aggregator before it commits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window
from blockhouse_aggregator.protocol.events import Insert
from blockhouse_aggregator.protocol.state import StreamState


def metadata_violations(metadata: Metadata) -> list[str]:
    """What is wrong with one metadata by itself: identity of the window, order and plausibility of its entries."""
    found: list[str] = []
    w = metadata.window
    total = w.reference + w.sealed + w.dead + w.holes + metadata.pending
    if total != metadata.position:
        found.append(f"I4: reference + sealed + dead + holes + pending = {total}, but P = {metadata.position}")
    ids = [entry.table for entry in metadata.tables]
    if ids != sorted(set(ids)):
        found.append(f"I2: entries are not unique and sorted: {ids}")
    for entry in metadata.tables:
        block, cursor = entry.in_flight, entry.cursor
        if block is None and cursor is None:
            found.append(f"table {entry.table}: an entry that says nothing")
        if block is not None and not (block.begin <= block.end < metadata.position or block.begin > block.end):
            found.append(f"I5: table {entry.table}: block [{block.begin}, {block.end}] beyond P {metadata.position}")
        if cursor is not None and cursor > metadata.position:
            found.append(f"I5: table {entry.table}: cursor {cursor} beyond P {metadata.position}")
        if block is not None and cursor is not None and cursor <= block.end:
            found.append(f"I3: table {entry.table}: cursor {cursor} inside the block up to {block.end}")
        if cursor is None and entry.pending:
            found.append(f"I4: table {entry.table}: {entry.pending} pending, but it does not lag")
    return found


def succession_violations(before: Metadata | None, after: Metadata, recut: frozenset[int] = frozenset()) -> list[str]:
    """What a successor may not do: go backward, overlap, forget a table that lagged, or skip a number.

    The blocks of the tables in `recut` were given up in between, by an audited decision.
    """
    if before is None:
        return []
    before = _without(before, recut)
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


def _without(metadata: Metadata, recut: frozenset[int]) -> Metadata:
    """The metadata as if the in-flight blocks of these tables had never been sealed."""
    tables, taken = [], 0
    for entry in metadata.tables:
        block = entry.in_flight
        if entry.table in recut and block is not None:
            taken += block.messages
            entry = TableEntry(entry.table, None, block.begin, entry.pending + block.messages)  # noqa: PLW2901
        tables.append(entry)
    window = replace(metadata.window, sealed=metadata.window.sealed - taken)
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


def grant_violations(state: StreamState, grants: Iterable[Insert]) -> list[str]:
    """I1: every granted insert is named, exactly, by the metadata known to be committed."""
    recorded: dict[int, InFlight] = {}
    if state.recorded is not None:
        recorded = {e.table: e.in_flight for e in state.recorded.tables if e.in_flight is not None}
    return [
        f"I1: table {g.table}: insert of [{g.intent.begin}, {g.intent.end}] without a committed intent"
        for g in grants
        if recorded.get(g.table) != g.intent
    ]
