"""What is read next: replays grouped by overlap, lagging tables on the way or in their turn."""

from __future__ import annotations

from dataclasses import replace

from blockhouse.metadata.model import TableEntry
from blockhouse_aggregator.protocol.events import TableScan
from blockhouse_aggregator.protocol.schedule import has_far, replays, scan
from blockhouse_aggregator.protocol.state import StreamState
from blockhouse_aggregator.protocol.takeover import Facts, Start, take_over
from tests.unit.protocol.given import NOW, A, B, C, committed, fresh_stream, intent, metadata, scanned, sealed


def inherited(*entries: TableEntry, position: int = 500) -> StreamState:
    recorded = metadata(position, *entries)
    facts = Facts(recorded.committed_offset, recorded, "", 0, 1000, "T1", False, "T1")
    start = take_over(facts, replica="r2", epoch=1, now_ms=NOW)
    assert isinstance(start, Start)
    return replace(start.state, confirmed=True)


def test_overlapping_blocks_are_rebuilt_in_one_pass_and_others_in_another() -> None:
    state = inherited(TableEntry(A, intent(10, 20)), TableEntry(B, intent(15, 40)), TableEntry(C, intent(90, 95)))
    everything = frozenset({A, B, C})
    first = replays(state, everything)
    assert first is not None
    assert [table for table, _ in first.blocks] == [A, B]
    rest = replays(state, everything - {A, B})
    assert rest is not None
    assert [table for table, _ in rest.blocks] == [C]


def test_a_table_held_back_by_a_retry_delay_is_not_rebuilt() -> None:
    assert replays(inherited(TableEntry(A, intent(10, 20))), ready=frozenset()) is None


def test_a_granted_block_is_not_rebuilt() -> None:
    state = committed(fresh_stream(), scanned(100, 101, TableScan(A, 1, sealed(100, 100))))
    assert replays(state, frozenset({A})) is None


def test_a_table_far_behind_is_read_in_a_scan_of_its_own_that_never_passes_the_position() -> None:
    state = inherited(TableEntry(A, cursor=10, pending=5), TableEntry(B, cursor=490, pending=5))
    assert has_far(state, skipped=frozenset(), near=100)
    own = scan(state, skipped=frozenset(), near=100, catch_up=True)
    assert (own.start, own.stop, own.resume, own.exclude) == (10, 500, ((A, 10),), frozenset({B}))
    usual = scan(state, skipped=frozenset(), near=100, catch_up=False)
    assert (usual.start, usual.stop, usual.resume, usual.exclude) == (490, None, ((B, 490),), frozenset({A}))


def test_a_paused_table_is_excluded_whether_it_lags_or_not() -> None:
    state = inherited(TableEntry(A, cursor=10, pending=5))
    request = scan(state, skipped=frozenset({A, B}), near=1000, catch_up=False)
    assert (request.start, request.resume, request.exclude) == (500, (), frozenset({A, B}))
    assert not has_far(state, skipped=frozenset({A}), near=1)
