"""The transition function: `(state, event) -> (state', effects)`. Everything an owner does follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from blockhouse.metadata.model import Window
from blockhouse_aggregator.protocol.events import (
    Alarm,
    Commit,
    CommitRefused,
    CommitSucceeded,
    CommitUnknown,
    Condemned,
    Effect,
    Event,
    Flush,
    Insert,
    InsertFailed,
    Rebuild,
    Rebuilt,
    Recut,
    Rejoin,
    Released,
    Scanned,
    SealedBlock,
    Stored,
)
from blockhouse_aggregator.protocol.sealing import ReportRejected, seal
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState, metadata_of, same_log

Step = tuple[StreamState, tuple[Effect, ...]]


def step(state: StreamState, event: Event, now_ms: int) -> Step:
    """The next state and what to do, in order. A closed state (its epoch is over) ignores everything.

    `now_ms` is Unix time in milliseconds; it only ever becomes the intent time, never a block boundary.
    """
    if state.closed:
        return state, ()
    match event:
        case Scanned():
            return _scanned(state, event, now_ms)
        case CommitSucceeded():
            return _committed(state, event)
        case CommitRefused():
            return _close(state, Rebuild(event.reason)) if _awaited(state, event.seq) else (state, ())
        case CommitUnknown():
            return _close(state, Rejoin()) if _awaited(state, event.seq) else (state, ())
        case Stored():
            return _stored(state, event)
        case InsertFailed():
            return _failed(state, event)
        case Rebuilt():
            return _rebuilt(state, event)
        case Condemned():
            return _block(state, event.table, event.reason, f"the block in flight cannot be inserted: {event.reason}")
        case Released():
            return _released(state, event), ()
        case Recut():
            return _recut(state, event)
        case Flush():
            return _flush(state, event, now_ms)
        case _:
            assert_never(event)


def _awaited(state: StreamState, seq: int) -> bool:
    return state.committing is not None and state.committing.seq == seq


def _close(state: StreamState, effect: Rebuild | Rejoin) -> Step:
    return replace(state, closed=True, committing=None), (effect,)


def _scanned(state: StreamState, event: Scanned, now_ms: int) -> Step:
    if state.committing is not None:
        return _close(state, Rebuild("a round was sealed while a commit was on its way"))
    try:
        after, alarms = seal(state, event.report, event.resumed, now_ms)
    except ReportRejected as error:
        after, effects = _close(state, Rebuild("ReportRejected"))
        return after, (*effects, Alarm("ReportRejected", str(error)))
    after, commit = _commit(after, now_ms)
    return after, (*alarms, *commit)


def _commit(state: StreamState, now_ms: int) -> Step:
    """Commit the state if it has anything the broker does not hold yet, or to prove that the stream is ours."""
    metadata = metadata_of(state, now_ms)
    must_confirm = bool(state.in_flight) and not state.confirmed
    if same_log(state.recorded, metadata) and not must_confirm:
        return state, ()
    effect = Commit(metadata.committed_offset, metadata, state.epoch)
    return replace(state, committing=metadata), (effect,)


def _committed(state: StreamState, event: CommitSucceeded) -> Step:
    """The intents in the committed metadata may be inserted now, and only those (I1)."""
    metadata = state.committing
    if metadata is None or metadata.seq != event.seq:
        return state, ()
    inserts: list[Insert] = []
    tables: list[TableState] = []
    for table in state.tables:
        block = table.block
        if block is not None and block.stage is Stage.SEALED:
            block = replace(block, stage=Stage.INSERTING)
            inserts.append(Insert(table.table, block.intent, block.fresh))
        tables.append(replace(table, block=block))
    after = replace(state, tables=tuple(tables), recorded=metadata, committing=None, confirmed=True, seq=metadata.seq)
    return after, tuple(inserts)


def _current(state: StreamState, table: int, begin: int, end: int) -> Block | None:
    """The table's block if it is exactly [begin, end]: an answer about any other block is out of date."""
    block = state.table(table).block
    if block is not None and (block.intent.begin, block.intent.end) == (begin, end):
        return block
    return None


def _stored(state: StreamState, event: Stored) -> Step:
    block = _current(state, event.table, event.begin, event.end)
    if block is None or block.stage is Stage.SEALED:
        return state, ()
    return state.with_table(replace(state.table(event.table), block=None)), ()


def _failed(state: StreamState, event: InsertFailed) -> Step:
    """Every retry is a replay: whatever happened to the insert, the same bytes come again, never others."""
    block = _current(state, event.table, event.begin, event.end)
    if block is None or block.stage is not Stage.INSERTING:
        return state, ()
    again = replace(block, stage=Stage.REPLAY, fresh=False)
    return state.with_table(replace(state.table(event.table), block=again)), ()


def _rebuilt(state: StreamState, event: Rebuilt) -> Step:
    """I7: only the identical block may be sent again; anything else must not reach the server."""
    built = event.block
    block = state.table(event.table).block
    if block is None or block.stage is not Stage.REPLAY:
        return state, ()
    recorded = block.intent
    if built.end < recorded.begin or recorded.end < built.begin:
        return state, ()  # an answer about an earlier block of the table: out of date
    # What bytes a foreign block had is not known: only its messages can be compared.
    crc = built.crc if recorded.foreign else recorded.crc
    if built != SealedBlock(recorded.begin, recorded.end, recorded.messages, recorded.encoded_with, crc):
        text = (
            f"block [{recorded.begin}, {recorded.end}] was recorded with {recorded.messages} messages, revision "
            f"{recorded.encoded_with}, crc {crc:08x}; rebuilt as [{built.begin}, {built.end}] with "
            f"{built.messages} messages, revision {built.revision}, crc {built.crc:08x}"
        )
        return _block(state, event.table, "ReplayDiffers", text)
    granted = replace(block, stage=Stage.INSERTING)
    after = state.with_table(replace(state.table(event.table), block=granted))
    return after, (Insert(event.table, recorded, fresh=False),)


def _block(state: StreamState, table: int, reason: str, text: str) -> Step:
    entry = state.table(table)
    if entry.block is None or entry.block.stage is Stage.SEALED:
        return state, ()
    blocked = replace(entry.block, stage=Stage.BLOCKED, fresh=False, reason=reason)
    return state.with_table(replace(entry, block=blocked)), (Alarm(reason, text, table),)


def _released(state: StreamState, event: Released) -> StreamState:
    """The reason stays until the block is stored: it counts as blocked as long as nothing proves that it is not."""
    entry = state.table(event.table)
    if entry.block is None or entry.block.stage is not Stage.BLOCKED:
        return state
    return state.with_table(replace(entry, block=replace(entry.block, stage=Stage.REPLAY)))


def _recut(state: StreamState, event: Recut) -> Step:
    """The messages of the block's range are pending again. Example: block [10, 14] of 3 messages with 1 dead among
    them, cursor 17, 2 pending -> cursor 10, 6 pending, 3 less sealed, 1 less dead; P stays."""
    block = _current(state, event.table, event.begin, event.end)
    if block is None or block.stage is not Stage.BLOCKED:
        return state, ()
    entry, messages = state.table(event.table), block.intent.messages
    dead = min(event.dead, state.window.dead)
    window = replace(state.window, sealed=state.window.sealed - messages, dead=state.window.dead - dead)
    lagging = TableState(event.table, None, event.begin, entry.pending + messages + dead)
    text = f"block [{event.begin}, {event.end}] of {messages} messages was abandoned; its messages are cut again"
    return replace(state.with_table(lagging), window=window), (Alarm("BlockRecut", text, event.table),)


def _flush(state: StreamState, event: Flush, now_ms: int) -> Step:
    """Record acknowledgements of a stream that has gone idle; close the window when nothing is in flight."""
    if state.committing is not None:
        return state, ()
    if event.close_window and not state.in_flight:
        window = Window(reference=state.position - state.pending)
        state = replace(state, window=window, window_opened_ms=now_ms)
    # A flush makes no intent. With the old time the ages of those in flight stay as short as they were: metadata that
    # is full must not grow beyond the broker's limit when the next owner confirms it.
    last = state.recorded.intent_ms if state.recorded is not None and state.in_flight else now_ms
    return _commit(state, last)
