"""One round of an owner, as docs/protocol.md describes it."""

from __future__ import annotations

from blockhouse.metadata.invariants import violations
from blockhouse_aggregator.protocol.events import (
    Alarm,
    Commit,
    CommitRefused,
    CommitSucceeded,
    CommitUnknown,
    Condemned,
    Flush,
    Insert,
    InsertFailed,
    Rebuild,
    Rebuilt,
    Rejoin,
    Stored,
    TableScan,
)
from blockhouse_aggregator.protocol.invariants import grant_violations
from blockhouse_aggregator.protocol.state import Stage, metadata_of
from tests.unit.protocol.given import (
    NOW,
    A,
    B,
    C,
    after,
    committed,
    fresh_stream,
    in_flight_stream,
    intent,
    scanned,
    sealed,
)


def test_the_worked_example_of_the_page() -> None:
    # given a stream at 100; when A B A - C ! B C is scanned while C is held
    state, effects = after(
        fresh_stream(),
        scanned(
            100,
            108,
            TableScan(A, 2, sealed(100, 102, 2)),
            TableScan(B, 2, sealed(101, 106, 2)),
            TableScan(C, 2, cursor=104),
            headless=1,
        ),
    )
    # then the metadata is exactly what the page shows
    (commit,) = effects
    assert isinstance(commit, Commit)
    window = commit.metadata.window
    assert (window.reference, window.sealed, window.dead, window.holes) == (100, 4, 1, 1)
    assert (commit.metadata.position, commit.metadata.pending, commit.offset) == (108, 2, 100)
    # and when both are stored and A at 110 is scanned, M.min moves to C's cursor
    state = committed(
        after(state, CommitSucceeded(1), Stored(A, 100, 102), Stored(B, 101, 106))[0],
        scanned(108, 112, TableScan(A, 1, sealed(110, 110))),
    )
    assert state.recorded is not None
    assert state.recorded.committed_offset == 104
    assert [entry.table for entry in state.recorded.tables] == [A, C]
    assert (state.recorded.window.sealed, state.recorded.window.holes) == (5, 4)
    assert violations(state.recorded) == []


def test_a_sealed_block_is_not_inserted_before_its_intent_is_committed() -> None:
    state, effects = after(fresh_stream(), scanned(100, 103, TableScan(A, 3, sealed(100, 102))))
    assert [type(effect) for effect in effects] == [Commit]
    state, effects = after(state, CommitSucceeded(1))
    assert effects == (Insert(A, intent(100, 102), fresh=True),)
    assert grant_violations(state, [e for e in effects if isinstance(e, Insert)]) == []


def test_a_refused_commit_drops_the_round_and_rebuilds_from_committed_metadata() -> None:
    state, effects = after(
        fresh_stream(), scanned(100, 103, TableScan(A, 3, sealed(100, 102))), CommitRefused(1, "IllegalGeneration")
    )
    assert effects == (Rebuild("IllegalGeneration"),)
    assert state.closed


def test_a_commit_of_unknown_fate_rejoins_instead_of_reading_on() -> None:
    state, effects = after(fresh_stream(), scanned(100, 103, TableScan(A, 3, sealed(100, 102))), CommitUnknown(1))
    assert effects == (Rejoin(),)
    assert state.closed


def test_a_closed_state_ignores_everything() -> None:
    closed, _ = after(fresh_stream(), scanned(100, 103, TableScan(A, 3, sealed(100, 102))), CommitUnknown(1))
    for event in (CommitSucceeded(1), Stored(A, 100, 102), Flush(), Rebuilt(A, sealed(100, 102))):
        assert after(closed, event) == (closed, ())


def test_an_answer_about_another_commit_changes_nothing() -> None:
    waiting, _ = after(fresh_stream(), scanned(100, 103, TableScan(A, 3, sealed(100, 102))))
    for event in (CommitSucceeded(2), CommitRefused(2, "x"), CommitUnknown(2)):
        assert after(waiting, event) == (waiting, ())


def test_a_round_sealed_while_a_commit_is_on_its_way_is_not_taken() -> None:
    _, effects = after(
        fresh_stream(),
        scanned(100, 103, TableScan(A, 3, sealed(100, 102))),
        scanned(103, 104, TableScan(B, 1, sealed(103, 103))),
    )
    assert [type(effect) for effect in effects] == [Rebuild]


def test_an_acknowledgement_is_recorded_by_the_next_commit_and_an_idle_stream_commits_once_more() -> None:
    state, effects = after(in_flight_stream(), Stored(A, 100, 102), Stored(B, 101, 103))
    assert effects == ()
    assert state.recorded is not None
    assert state.recorded.committed_offset == 100, "not recorded yet"
    state, effects = after(state, Flush())
    (commit,) = effects
    assert isinstance(commit, Commit)
    assert (commit.offset, commit.metadata.tables) == (104, ())
    # and then there is nothing to commit
    state, _ = after(state, CommitSucceeded(commit.metadata.seq))
    assert after(state, Flush()) == (state, ())


def test_an_acknowledgement_of_another_block_changes_nothing() -> None:
    state = in_flight_stream()
    assert after(state, Stored(A, 90, 99)) == (state, ())
    assert after(state, InsertFailed(A, 90, 99)) == (state, ())


def test_a_failed_insert_is_replayed_as_the_same_block_and_is_no_longer_fresh() -> None:
    state, effects = after(in_flight_stream(), InsertFailed(A, 100, 102))
    assert effects == ()
    assert state.table(A).block is not None
    assert state.table(A).block.stage is Stage.REPLAY  # type: ignore[union-attr]
    assert state.replaying
    state, effects = after(state, Rebuilt(A, sealed(100, 102, 2)))
    assert effects == (Insert(A, intent(100, 102, 2), fresh=False),)


def test_a_rebuilt_block_that_differs_in_anything_is_not_inserted() -> None:
    replaying, _ = after(in_flight_stream(), InsertFailed(A, 100, 102))
    others = {
        "another crc": sealed(100, 102, 2, crc=1),
        "another count": sealed(100, 102, 3),
        "another end": sealed(100, 103, 2),
        "another begin": sealed(101, 102, 2),
    }
    for what, other in others.items():
        state, effects = after(replaying, Rebuilt(A, other))
        assert [e.reason for e in effects if isinstance(e, Alarm)] == ["ReplayDiffers"], what
        assert not [e for e in effects if isinstance(e, Insert)], what
        assert state.table(A).block.stage is Stage.BLOCKED, what  # type: ignore[union-attr]


def test_a_rebuilt_block_that_was_meant_for_an_earlier_one_is_ignored() -> None:
    replaying, _ = after(in_flight_stream(), InsertFailed(A, 100, 102))
    assert after(replaying, Rebuilt(A, sealed(90, 99))) == (replaying, ())


def test_a_blocked_table_lags_while_the_others_flow() -> None:
    # given A condemned
    state, effects = after(in_flight_stream(), Condemned(A, "ConstraintViolated"))
    assert [e.reason for e in effects if isinstance(e, Alarm)] == ["ConstraintViolated"]
    # when a round finds messages of A and B, with B's first block stored
    state = committed(
        after(state, Stored(B, 101, 103))[0],
        scanned(104, 108, TableScan(A, 2, cursor=104), TableScan(B, 2, sealed(105, 107, 2))),
    )
    # then A keeps its block and lags behind it, and B is in flight
    a, b = state.table(A), state.table(B)
    assert a.block is not None
    assert (a.block.intent.begin, a.cursor, a.pending) == (100, 104, 2)
    assert b.block is not None
    assert b.block.stage is Stage.INSERTING
    assert state.recorded is not None
    assert state.recorded.committed_offset == 100


def test_the_window_closes_only_when_nothing_is_in_flight_and_carries_what_is_pending() -> None:
    state = committed(in_flight_stream(), scanned(104, 106, TableScan(C, 2, cursor=104)))
    assert after(state, Flush(close_window=True))[0].window == state.window, "blocks are in flight"
    state, effects = after(state, Stored(A, 100, 102), Stored(B, 101, 103), Flush(close_window=True), now=NOW + 60_000)
    (commit,) = effects
    assert isinstance(commit, Commit)
    window = commit.metadata.window
    assert (window.reference, window.sealed, window.dead, window.holes) == (104, 0, 0, 0)
    assert commit.metadata.pending == 2
    assert violations(commit.metadata) == []
    assert state.window_opened_ms == NOW + 60_000


def test_the_intent_time_is_that_of_the_first_commit() -> None:
    state = in_flight_stream()
    later = metadata_of(state, NOW + 5_000)
    assert later.intent_ms == NOW + 5_000
    assert [entry.in_flight.intent_ms for entry in later.tables if entry.in_flight] == [NOW, NOW]
