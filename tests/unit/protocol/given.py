"""States, reports and metadata in few words, for tests that read like the protocol."""

from __future__ import annotations

from dataclasses import replace

from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window
from blockhouse_aggregator.protocol.events import (
    CommitSucceeded,
    Effect,
    Event,
    Scanned,
    ScanReport,
    SealedBlock,
    TableScan,
)
from blockhouse_aggregator.protocol.state import StreamState
from blockhouse_aggregator.protocol.step import step

NOW = 1_700_000_000_000
A, B, C = 1, 2, 3


def fresh_stream(position: int = 100) -> StreamState:
    """A stream of which nothing was committed, at `position`."""
    return StreamState(
        replica="r1",
        epoch=1,
        topic_id="T1",
        leader_epoch=-1,
        seq=0,
        position=position,
        window=Window(reference=position),
        window_opened_ms=NOW,
    )


def sealed(begin: int, end: int, messages: int | None = None, crc: int = 0xC0FFEE) -> SealedBlock:
    return SealedBlock(begin, end, end - begin + 1 if messages is None else messages, 1, crc)


def intent(begin: int, end: int, messages: int | None = None, at: int = NOW) -> InFlight:
    block = sealed(begin, end, messages)
    return InFlight(begin, end, block.messages, block.revision, block.crc, at)


def scanned(
    start: int, stop: int, *tables: TableScan, headless: int = 0, resumed: frozenset[int] = frozenset()
) -> Scanned:
    return Scanned(ScanReport(start, stop, tables, headless), resumed)


def metadata(position: int, *entries: TableEntry, seq: int = 7, topic_id: str = "T1", reference: int = 0) -> Metadata:
    """Metadata whose identity holds: what the entries do not explain was sealed."""
    pending = sum(entry.pending for entry in entries)
    window = Window(reference, sealed=position - reference - pending)
    return Metadata("r1", seq, NOW, topic_id, 3, position, window, entries)


def after(state: StreamState, *events: Event, now: int = NOW) -> tuple[StreamState, tuple[Effect, ...]]:
    """The state after the events, and the effects of the last one."""
    effects: tuple[Effect, ...] = ()
    for event in events:
        state, effects = step(state, event, now)
    return state, effects


def committed(state: StreamState, *events: Event) -> StreamState:
    """The state after the events, each commit of which succeeded."""
    for event in events:
        state, _ = step(state, event, NOW)
        if state.committing is not None:
            state, _ = step(state, CommitSucceeded(state.committing.seq), NOW)
    return state


def in_flight_stream() -> StreamState:
    """A is in flight with [100, 102], 2 messages; B with [101, 103], 2 messages; both granted. P = 104."""
    return committed(
        fresh_stream(),
        scanned(100, 104, TableScan(A, 2, sealed(100, 102, 2)), TableScan(B, 2, sealed(101, 103, 2))),
    )


def stale(state: StreamState, **changes: object) -> StreamState:
    return replace(state, **changes)  # type: ignore[arg-type]
