"""A report must account for every offset it scanned, or nothing of it is committed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse_aggregator.protocol.events import Alarm, Rebuild, ScanReport, TableScan
from blockhouse_aggregator.protocol.sealing import ReportRejected, seal
from blockhouse_aggregator.protocol.state import StreamState
from tests.unit.protocol.given import NOW, A, B, after, committed, fresh_stream, in_flight_stream, scanned, sealed


def sealing(
    state: StreamState,
    start: int,
    stop: int,
    *tables: TableScan,
    headless: int = 0,
    resumed: frozenset[int] = frozenset(),
) -> StreamState:
    return seal(state, ScanReport(start, stop, tables, headless), resumed, NOW)[0]


def lagging_stream() -> StreamState:
    """A lags: 2 messages from 101 on are pending; P = 104."""
    return committed(fresh_stream(), scanned(100, 104, TableScan(A, 2, cursor=101)))


def test_what_was_neither_seen_nor_headless_is_a_hole() -> None:
    state = sealing(fresh_stream(), 100, 110, TableScan(A, 4, sealed(101, 107, 4)), headless=1)
    assert (state.window.sealed, state.window.dead, state.window.holes) == (4, 1, 5)


def test_a_table_over_its_limit_lags_behind_its_own_block() -> None:
    state = sealing(fresh_stream(), 100, 110, TableScan(A, 5, sealed(100, 103, 3), cursor=106))
    table = state.table(A)
    assert table.block is not None
    assert (table.block.intent.end, table.cursor, table.pending) == (103, 106, 2)


def test_dead_letters_of_a_table_are_counted_and_do_not_lag() -> None:
    state = sealing(fresh_stream(), 100, 103, TableScan(A, 3, sealed(100, 101), dead=1))
    assert (state.window.sealed, state.window.dead, state.table(A).cursor) == (2, 1, None)


def test_a_resumed_table_continues_from_its_cursor_on_the_way_with_new_messages() -> None:
    state = sealing(
        lagging_stream(),
        101,
        106,
        TableScan(A, 1, sealed(101, 105, 3)),
        TableScan(B, 1, sealed(104, 104)),
        resumed=frozenset({A}),
    )
    assert state.position == 106
    assert (state.table(A).cursor, state.table(A).pending) == (None, 0)
    assert state.table(A).block is not None


def test_a_catch_up_scan_that_stops_below_the_position_leaves_the_rest_pending() -> None:
    state = sealing(lagging_stream(), 101, 102, TableScan(A, 0, sealed(101, 101)), resumed=frozenset({A}))
    assert (state.position, state.table(A).cursor, state.table(A).pending) == (104, 102, 1)


def test_a_lagging_table_with_nothing_left_needs_no_entry_even_below_the_position() -> None:
    state = sealing(lagging_stream(), 101, 103, TableScan(A, 0, sealed(101, 102)), resumed=frozenset({A}))
    assert (state.position, state.table(A).cursor, state.table(A).pending) == (104, None, 0)


def test_pending_messages_that_never_came_are_counted_as_holes_loudly() -> None:
    report = ScanReport(101, 104, (TableScan(A, 0, sealed(101, 101)),))
    state, alarms = seal(lagging_stream(), report, frozenset({A}), NOW)
    assert (state.window.holes - lagging_stream().window.holes, state.table(A).cursor) == (1, None)
    assert [(alarm.reason, alarm.table) for alarm in alarms] == [("LaggingMessagesExpired", A)]


def test_a_paused_table_only_counts_what_it_saw() -> None:
    state = sealing(lagging_stream(), 104, 106, TableScan(A, 2, cursor=104))
    assert (state.table(A).cursor, state.table(A).pending) == (101, 4)


REJECTED = {
    "more seen than scanned": (
        fresh_stream(),
        100,
        102,
        (TableScan(A, 2, sealed(100, 101)), TableScan(B, 1, sealed(101, 101))),
        frozenset(),
    ),
    "starts beyond P": (fresh_stream(), 101, 103, (), frozenset()),
    "ends before it starts": (fresh_stream(), 100, 99, (), frozenset()),
    "a table twice": (
        fresh_stream(),
        100,
        103,
        (TableScan(A, 1, cursor=100), TableScan(A, 1, cursor=101)),
        frozenset(),
    ),
    "seen and forgotten": (fresh_stream(), 100, 103, (TableScan(A, 2, sealed(100, 100)),), frozenset()),
    "took more than it saw": (fresh_stream(), 100, 103, (TableScan(A, 1, sealed(100, 101)),), frozenset()),
    "block below P": (fresh_stream(), 99, 103, (TableScan(A, 2, sealed(99, 100)),), frozenset()),
    "block beyond the scan": (fresh_stream(), 100, 103, (TableScan(A, 2, sealed(102, 103)),), frozenset()),
    "more messages than offsets": (fresh_stream(), 100, 103, (TableScan(A, 3, sealed(100, 101, 3)),), frozenset()),
    "an empty block": (fresh_stream(), 100, 103, (TableScan(A, 0, sealed(100, 101, 0)),), frozenset()),
    "cursor inside the block": (
        fresh_stream(),
        100,
        104,
        (TableScan(A, 4, sealed(100, 102, 3), cursor=102),),
        frozenset(),
    ),
    "cursor below P": (fresh_stream(), 100, 104, (TableScan(A, 1, cursor=99),), frozenset()),
    "cursor beyond the scan": (fresh_stream(), 100, 104, (TableScan(A, 1, cursor=104),), frozenset()),
    "second block of a table in flight": (
        in_flight_stream(),
        104,
        106,
        (TableScan(A, 1, sealed(104, 104)),),
        frozenset(),
    ),
    "dead letter of a table in flight": (in_flight_stream(), 104, 106, (TableScan(A, 1, dead=1),), frozenset()),
    "resumes a table in flight": (in_flight_stream(), 100, 106, (TableScan(A, 1, cursor=104),), frozenset({A})),
    "resumes a table that does not lag": (fresh_stream(), 100, 106, (TableScan(A, 1, cursor=104),), frozenset({A})),
    "skips the cursor it resumes": (lagging_stream(), 102, 104, (TableScan(A, 0, sealed(102, 102)),), frozenset({A})),
    "cursor goes back": (lagging_stream(), 100, 106, (TableScan(A, 0, cursor=100),), frozenset({A})),
    "block of a lagging table not resumed": (
        lagging_stream(),
        104,
        106,
        (TableScan(A, 2, sealed(104, 105)),),
        frozenset(),
    ),
}


@pytest.mark.parametrize("case", REJECTED)
def test_a_report_that_does_not_add_up_is_rejected(case: str) -> None:
    state, start, stop, tables, resumed = REJECTED[case]
    with pytest.raises(ReportRejected):
        seal(state, ScanReport(start, stop, tables), resumed, NOW)


def test_a_rejected_report_commits_nothing_and_rebuilds() -> None:
    state, effects = after(fresh_stream(), scanned(100, 102, TableScan(A, 3, sealed(100, 101))))
    assert [type(effect) for effect in effects] == [Rebuild, Alarm]
    assert state.closed


def test_the_leader_epoch_is_that_of_the_position_or_not_known() -> None:
    """That of an earlier position would report a truncation that is none: a marker of a later one may follow it."""
    state = replace(fresh_stream(), leader_epoch=3)

    def epoch_after(report: ScanReport) -> int:
        return seal(state, report, frozenset(), NOW)[0].leader_epoch

    assert epoch_after(ScanReport(100, 110, (), leader_epoch=5)) == 5
    assert epoch_after(ScanReport(100, 110, (), leader_epoch=-1)) == -1
    assert epoch_after(ScanReport(100, 100, (), leader_epoch=-1)) == 3
