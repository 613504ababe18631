"""A blocked block: tried again when its cause may be gone, or abandoned and cut again."""

from __future__ import annotations

from dataclasses import replace

from blockhouse.metadata.invariants import succession_violations, violations
from blockhouse_aggregator.protocol.events import (
    Alarm,
    Commit,
    CommitSucceeded,
    Condemned,
    Flush,
    Insert,
    Rebuilt,
    Recut,
    Released,
    TableScan,
)
from blockhouse_aggregator.protocol.schedule import replays, scan
from blockhouse_aggregator.protocol.state import Stage, StreamState, metadata_of
from tests.unit.protocol.given import NOW, A, B, after, committed, fresh_stream, in_flight_stream, scanned, sealed


def blocked_stream() -> StreamState:
    """A is blocked with [100, 102], 2 messages, and lags from 105 with one pending; B is in flight. P = 107."""
    state, _ = after(in_flight_stream(), Condemned(A, "ColumnsDiffer"))
    return committed(state, scanned(104, 107, TableScan(A, 1, cursor=105), headless=0))


def test_a_released_block_is_replayed_as_any_inherited_one() -> None:
    state, effects = after(blocked_stream(), Released(A))
    assert effects == ()
    request = replays(state, ready=frozenset({A, B}))
    assert request is not None
    assert [(table, block.begin, block.end) for table, block in request.blocks] == [(A, 100, 102)]
    _, (grant,) = after(state, Rebuilt(A, sealed(100, 102, 2)))
    assert isinstance(grant, Insert)
    assert not grant.fresh


def test_nothing_but_a_blocked_block_is_released_or_recut() -> None:
    state = in_flight_stream()
    for event in (Released(A), Recut(A, 100, 102), Released(9), Recut(9, 1, 2)):
        assert after(state, event) == (state, ())
    blocked = blocked_stream()
    assert after(blocked, Recut(A, 100, 101)) == (blocked, ()), "a decision about another block is out of date"


def test_the_messages_of_a_recut_block_are_pending_from_its_begin_and_the_counts_still_add_up() -> None:
    before = blocked_stream()
    state, effects = after(before, Recut(A, 100, 102))
    assert [type(effect) for effect in effects] == [Alarm]
    entry = state.table(A)
    assert (entry.block, entry.cursor, entry.pending) == (None, 100, 3)
    assert state.window.sealed == before.window.sealed - 2
    metadata = metadata_of(state, NOW)
    assert violations(metadata) == []
    assert before.recorded is not None
    assert succession_violations(before.recorded, metadata, recut={A: 0}) == []
    assert succession_violations(before.recorded, metadata), "never by itself"


def test_a_recut_block_is_cut_again_and_committed_before_it_is_inserted() -> None:
    state, _ = after(blocked_stream(), Recut(A, 100, 102))
    request = scan(state, skipped=frozenset(), near=1000, catch_up=False)
    assert dict(request.resume) == {A: 100}
    state, effects = after(
        state, scanned(100, 107, TableScan(A, 0, replace(sealed(100, 105, 3), revision=2)), resumed=frozenset({A}))
    )
    assert [type(effect) for effect in effects] == [Commit]
    assert state.committing is not None
    _, grants = after(state, CommitSucceeded(state.committing.seq))
    assert [(g.table, g.intent.begin, g.intent.end) for g in grants if isinstance(g, Insert)] == [(A, 100, 105)]


def test_a_recut_is_recorded_even_when_nothing_follows() -> None:
    state, _ = after(blocked_stream(), Recut(A, 100, 102))
    _, (commit,) = after(state, Flush())
    assert isinstance(commit, Commit)
    assert commit.offset == 100
    assert state.table(A).block is None
    assert state.table(B).block is not None
    assert state.table(B).block.stage is Stage.INSERTING  # type: ignore[union-attr]


def test_messages_of_its_range_that_were_dead_lettered_are_counted_again() -> None:
    """They will be dead-lettered again: a scan that reports them must find them pending."""
    cut = committed(fresh_stream(), scanned(100, 104, TableScan(A, 4, sealed(100, 103, 3), dead=1)))
    before, _ = after(cut, Condemned(A, "ColumnsDiffer"))
    state, _ = after(before, Recut(A, 100, 103, dead=1))
    assert (state.table(A).cursor, state.table(A).pending) == (100, 4)
    assert (state.window.sealed, state.window.dead) == (before.window.sealed - 3, before.window.dead - 1)
    metadata = metadata_of(state, NOW)
    assert violations(metadata) == []
    assert succession_violations(before.recorded, metadata, recut={A: 1}) == []
    other = replace(sealed(100, 103, 3), revision=2)
    again = scanned(100, 104, TableScan(A, 0, other, dead=1), resumed=frozenset({A}))
    state, effects = after(state, again)
    assert [type(effect) for effect in effects] == [Commit], "the report adds up"
    assert (state.table(A).pending, state.window.dead) == (0, before.window.dead)
