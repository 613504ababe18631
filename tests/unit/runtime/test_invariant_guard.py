"""The driver's check of what it is about to commit knows which blocks a person has abandoned."""

from __future__ import annotations

from blockhouse_aggregator.protocol.events import CommitSucceeded, Condemned, Event, Flush, Recut, Stored
from blockhouse_aggregator.protocol.state import StreamState
from blockhouse_aggregator.runtime.stream.invariant_guard import InvariantGuard
from tests.unit.protocol.given import A, B, after, in_flight_stream


def test_a_block_may_be_abandoned_while_another_commit_is_on_its_way() -> None:
    guard = InvariantGuard()
    state, _ = after(in_flight_stream(), Condemned(A, "ColumnsDiffer"))
    state = checked(guard, state, Stored(B, 101, 103))
    state = checked(guard, state, Flush())
    assert state.committing is not None, "that of B's acknowledgement, with A's block"
    state = checked(guard, state, Recut(A, 100, 102))
    state = checked(guard, state, CommitSucceeded(state.committing.seq))  # type: ignore[union-attr]
    state = checked(guard, state, Flush())
    assert state.committing is not None
    state = checked(guard, state, CommitSucceeded(state.committing.seq))
    assert state.recorded is not None
    assert [entry.in_flight for entry in state.recorded.tables] == [None], "it is abandoned"


def checked(guard: InvariantGuard, before: StreamState, event: Event) -> StreamState:
    """The state after the event, with which nothing may be wrong."""
    state, effects = after(before, event)
    assert guard.check(event, state, effects) == [], event
    return state
