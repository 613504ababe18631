"""One defect each, put behind a legal history: what a broken owner would commit next, and what has to be reported.

A defect returns None where a history gives it no room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from zlib import crc32

from blockhouse.metadata import codec
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window
from blockhouse.metadata.v2 import _base36
from blockhouse_aggregator.verifier.anomaly import Finding, Kind, LogBegins
from tests.property.verifier_histories import Commit

Injected = tuple[tuple[int, str], Finding]
Defect = Callable[[Sequence[Commit], Random], Injected | None]


def _next(history: Sequence[Commit]) -> Metadata:
    """The metadata that a flush would commit."""
    last = history[-1].metadata
    return replace(last, seq=last.seq + 1)


def _committed(metadata: Metadata) -> tuple[int, str]:
    return metadata.committed_offset, codec.encode(metadata)


def _sealed(metadata: Metadata, more: int) -> Window:
    return replace(metadata.window, sealed=metadata.window.sealed + more)


def _with(metadata: Metadata, entry: TableEntry) -> Metadata:
    others = [e for e in metadata.tables if e.table != entry.table]
    return replace(metadata, tables=tuple(sorted([*others, entry], key=lambda e: e.table)))


def position_goes_back(history: Sequence[Commit], random: Random) -> Injected | None:
    last = history[-1].metadata
    lagging = tuple(replace(entry, in_flight=None) for entry in last.tables if entry.cursor is not None)
    room = min([last.window.sealed, *(last.position - (entry.cursor or 0) for entry in lagging)])
    if room < 1:
        return None
    by = random.randint(1, room)
    made = replace(_next(history), position=last.position - by, window=_sealed(last, -by), tables=lagging)
    return _committed(made), Finding(Kind.BACKWARD, "", None, last.position - by, last.position - 1)


def block_before_everything(history: Sequence[Commit], random: Random) -> Injected | None:
    """A table without an entry is loaded again from below P."""
    last = history[-1].metadata
    if last.position < 3:
        return None
    begin = random.randint(0, last.position - 2)
    end = random.randint(begin, last.position - 2)
    made = replace(_next(history), position=last.position + 1, window=_sealed(last, 1))
    made = _with(made, TableEntry(9, InFlight(begin, end, 1, 1, 7, last.intent_ms)))
    return _committed(made), Finding(Kind.BACKWARD, "", "9", begin, end)


def block_overlaps_what_is_stored(history: Sequence[Commit], random: Random) -> Injected | None:
    last = history[-1].metadata
    if last.position < 1:
        return None
    begin = random.randint(max(0, last.position - 5), last.position - 1)
    end = last.position + 3
    made = replace(_next(history), position=end + 1, window=_sealed(last, end + 1 - last.position))
    made = _with(made, TableEntry(9, InFlight(begin, end, end + 1 - last.position, 1, 7, last.intent_ms)))
    return _committed(made), Finding(Kind.OVERLAP, "", "9", begin, last.position - 1)


def block_overlaps_the_one_in_flight(history: Sequence[Commit], random: Random) -> Injected | None:
    last = history[-1].metadata
    fitting = [e for e in last.tables if e.in_flight and e.cursor is None]
    if not fitting:
        return None
    entry = random.choice(fitting)
    assert entry.in_flight is not None
    begin = random.randint(entry.in_flight.begin, entry.in_flight.end)
    end = last.position
    made = replace(_next(history), position=last.position + 1, window=_sealed(last, 1))
    made = _with(made, replace(entry, in_flight=InFlight(begin, end, 1, 1, 7, last.intent_ms)))
    return _committed(made), Finding(Kind.OVERLAP, "", str(entry.table), begin, entry.in_flight.end)


def block_is_recorded_with_other_content(history: Sequence[Commit], random: Random) -> Injected | None:
    last = history[-1].metadata
    fitting = [e for e in last.tables if e.in_flight]
    if not fitting:
        return None
    entry = random.choice(fitting)
    block = entry.in_flight
    assert block is not None
    made = _with(_next(history), replace(entry, in_flight=replace(block, crc=block.crc ^ 1)))
    return _committed(made), Finding(Kind.OVERLAP, "", str(entry.table), block.begin, block.end)


def counted_twice(history: Sequence[Commit], random: Random) -> Injected | None:
    """A block of messages that no growth of the counts stands behind: they were counted before."""
    last = history[-1].metadata
    made = replace(_next(history), position=last.position + 2, window=replace(last.window, holes=last.window.holes + 2))
    made = _with(made, TableEntry(9, InFlight(last.position, last.position + 1, 2, 1, 7, last.intent_ms)))
    return _committed(made), Finding(Kind.OVERLAP, "", None, last.committed_offset, last.position + 1)


def cursor_goes_back(history: Sequence[Commit], random: Random) -> Injected | None:
    last = history[-1].metadata
    fitting = [e for e in last.tables if e.cursor and not e.in_flight]
    if not fitting:
        return None
    entry = random.choice(fitting)
    assert entry.cursor is not None
    cursor = random.randint(0, entry.cursor - 1)
    made = _with(_next(history), replace(entry, cursor=cursor))
    return _committed(made), Finding(Kind.BACKWARD, "", str(entry.table), cursor, entry.cursor - 1)


def block_is_abandoned(history: Sequence[Commit], random: Random) -> Injected | None:
    """As an operator's decision does it: not a loss by itself, but reported."""
    last = history[-1].metadata
    fitting = [e for e in last.tables if e.in_flight]
    if not fitting:
        return None
    entry = random.choice(fitting)
    block = entry.in_flight
    assert block is not None
    made = replace(_next(history), window=_sealed(last, -block.messages))
    if made.window.sealed < 0:
        return None  # the window was never closed over a block in flight: this defect cannot occur
    made = _with(made, TableEntry(entry.table, None, block.begin, entry.pending + block.messages))
    return _committed(made), Finding(Kind.RECUT, "", str(entry.table), block.begin, block.end)


def block_with_dead_letters_is_abandoned(history: Sequence[Commit], random: Random) -> Injected | None:
    """The dead-lettered messages of its range are pending again, too."""
    last = history[-1].metadata
    fitting = [e for e in last.tables if e.in_flight and e.in_flight.messages <= e.in_flight.end - e.in_flight.begin]
    if not fitting or not last.window.dead:
        return None
    entry = random.choice(fitting)
    block = entry.in_flight
    assert block is not None
    window = _sealed(last, -block.messages)
    made = replace(_next(history), window=replace(window, dead=window.dead - 1))
    if made.window.sealed < 0:
        return None
    made = _with(made, TableEntry(entry.table, None, block.begin, entry.pending + block.messages + 1))
    return _committed(made), Finding(Kind.RECUT, "", str(entry.table), block.begin, block.end)


def messages_sealed_in_no_block(history: Sequence[Commit], random: Random) -> Injected | None:
    last = history[-1].metadata
    by = random.randint(1, 50)
    made = replace(_next(history), position=last.position + by, window=_sealed(last, by))
    return _committed(made), Finding(Kind.GAP, "", None, last.committed_offset, last.position + by - 1)


def pending_forgotten(history: Sequence[Commit], random: Random) -> Injected | None:
    """A lagging table vanishes; its messages are passed off as the holes of a new range."""
    last = history[-1].metadata
    fitting = [e for e in last.tables if e.pending and not e.in_flight]
    if not fitting:
        return None
    entry = random.choice(fitting)
    assert entry.cursor is not None
    others = tuple(e for e in last.tables if e.table != entry.table)
    made = replace(_next(history), window=_sealed(last, entry.pending), tables=others)
    return _committed(made), Finding(Kind.GAP, "", str(entry.table), entry.cursor, last.position - 1)


def window_closed_over_a_gap(history: Sequence[Commit], random: Random) -> Injected | None:
    last = history[-1].metadata
    position = last.position + random.randint(1, 50)
    lagging = tuple(replace(e, in_flight=None) for e in last.tables if e.cursor is not None)
    pending = sum(e.pending for e in lagging)
    made = replace(_next(history), position=position, window=Window(position - pending), tables=lagging)
    return _committed(made), Finding(Kind.GAP, "", None, last.position, position - 1, unless=LogBegins(position))


def reference_moved(history: Sequence[Commit], random: Random) -> Injected | None:
    last = history[-1].metadata
    if last.window.sealed < 2:
        return None
    window = replace(last.window, reference=last.window.reference + 1, sealed=last.window.sealed - 1)
    made = replace(_next(history), window=window)
    return _committed(made), Finding(Kind.GAP, "", None, last.window.reference, last.position - 1)


def position_jumps_without_counts(history: Sequence[Commit], random: Random) -> Injected | None:
    """What no codec of ours would write: the identity of the window does not hold."""
    made = _next(history)
    by = random.randint(1, 30)
    fields = codec.encode(made).split(";")
    fields[7] = _base36(int(fields[7], 36) + by)
    counts = fields[8].split(".")
    counts[0] = _base36(int(counts[0], 36) + by)
    fields[8] = ".".join(counts)
    body = ";".join(fields)[:-8]
    text = body + _base36(crc32(body.encode())).rjust(7, "0") + ";"
    return (made.committed_offset, text), Finding(Kind.GAP, "", None, made.position, made.position + by - 1)


def a_tool_sets_the_offset(history: Sequence[Commit], random: Random) -> Injected | None:
    offset = random.randint(0, 100)
    return (offset, ""), Finding(Kind.FOREIGN, "", None, offset, offset)


def an_offset_of_another_metadata(history: Sequence[Commit], random: Random) -> Injected | None:
    made = _next(history)
    offset = made.committed_offset + random.randint(1, 9)
    return (offset, codec.encode(made)), Finding(Kind.FOREIGN, "", None, made.committed_offset, offset)


def another_topic_in_the_middle(history: Sequence[Commit], random: Random) -> Injected | None:
    made = replace(_next(history), topic_id="other")
    return _committed(made), Finding(Kind.FOREIGN, "", None, made.committed_offset, made.position)


def a_commit_is_lost(history: Sequence[Commit], random: Random) -> Injected | None:
    last = history[-1].metadata
    made = replace(last, seq=last.seq + random.randint(2, 9))
    return _committed(made), Finding(Kind.ORDER, "", None, last.position, last.position)


def a_number_is_used_twice(history: Sequence[Commit], random: Random) -> Injected | None:
    last = history[-1].metadata
    made = replace(last, intent_ms=last.intent_ms + 1, leader_epoch=last.leader_epoch + 1)
    return _committed(made), Finding(Kind.ORDER, "", None, last.committed_offset, last.position - 1)


def another_owner_uses_the_number(history: Sequence[Commit], random: Random) -> Injected | None:
    last = history[-1].metadata
    made = replace(last, replica="zombie")
    return _committed(made), Finding(Kind.INTERLEAVED, "", None, last.committed_offset, last.position - 1)


def started_afresh(history: Sequence[Commit], random: Random) -> Injected | None:
    last = history[-1].metadata
    if last.seq < 2:
        return None
    start = random.randint(0, last.committed_offset)
    made = replace(last, seq=1, position=start, window=Window(start), tables=())
    return _committed(made), Finding(Kind.RESTART, "", None, start, max(last.committed_offset, last.position) - 1)


def a_text_is_damaged(history: Sequence[Commit], random: Random) -> Injected | None:
    text = codec.encode(_next(history))
    at = random.randrange(2, len(text))
    damaged = text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :]
    return (7, damaged), Finding(Kind.UNREADABLE, "", None, 7, 7)


def a_foreign_text(history: Sequence[Commit], random: Random) -> Injected | None:
    return (7, random.choice(["hello", "3;x;", "{}", "2;"])), Finding(Kind.UNREADABLE, "", None, 7, 7)


DEFECTS: tuple[Defect, ...] = (
    position_goes_back,
    block_before_everything,
    block_overlaps_what_is_stored,
    block_overlaps_the_one_in_flight,
    block_is_recorded_with_other_content,
    counted_twice,
    cursor_goes_back,
    block_is_abandoned,
    block_with_dead_letters_is_abandoned,
    messages_sealed_in_no_block,
    pending_forgotten,
    window_closed_over_a_gap,
    reference_moved,
    position_jumps_without_counts,
    a_tool_sets_the_offset,
    an_offset_of_another_metadata,
    another_topic_in_the_middle,
    a_commit_is_lost,
    a_number_is_used_twice,
    another_owner_uses_the_number,
    started_afresh,
    a_text_is_damaged,
    a_foreign_text,
)
