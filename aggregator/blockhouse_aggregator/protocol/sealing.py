"""A scanned range becomes blocks and lagging tables: the arithmetic by which no message is forgotten (I4, I5).

For every scan of [start, stop), with P the position before it:
    new offsets:  stop - P  =  sum(seen) + headless + holes          (nothing when stop <= P)
    per table:    pending'  =  pending + seen - messages in the block - dead
Hence reference + sealed + dead + holes + pending = P keeps holding.
"""

from __future__ import annotations

from dataclasses import replace

from blockhouse.metadata.model import InFlight
from blockhouse_aggregator.protocol.events import Alarm, ScanReport, TableScan
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState


class ReportRejected(ValueError):
    """A worker's report contradicts the state or itself: the round is dropped, nothing of it is committed."""


def seal(
    state: StreamState, report: ScanReport, resumed: frozenset[int], now_ms: int
) -> tuple[StreamState, tuple[Alarm, ...]]:
    """The state after the scan, its new blocks SEALED, and an alarm for every lagging message the log has lost.

    Raises ReportRejected when the report does not add up.
    """
    if any(state.table(t).cursor is not None and report.start > (state.table(t).cursor or 0) for t in resumed):
        raise ReportRejected(f"scan from {report.start} skips the cursor of a table it resumes")
    new_offsets = max(0, report.stop - state.position)
    holes = new_offsets - sum(t.seen for t in report.tables) - report.headless
    if holes < 0 or not report.start <= min(report.stop, state.position):
        raise ReportRejected(f"scan [{report.start}, {report.stop}) from P={state.position} leaves {holes} holes")
    if len({t.table for t in report.tables}) != len(report.tables):
        raise ReportRejected("a table is reported twice")
    found = {t.table: t for t in report.tables}
    window = state.window
    alarms: list[Alarm] = []
    after = state
    for table in sorted(found.keys() | resumed):
        scan = found.get(table, TableScan(table, seen=0))
        changed, lost = _seal_table(state, scan, report.stop, table in resumed, now_ms)
        taken = scan.block.messages if scan.block else 0
        window = replace(window, sealed=window.sealed + taken, dead=window.dead + scan.dead, holes=window.holes + lost)
        if lost:
            alarms.append(
                Alarm("LaggingMessagesExpired", f"{lost} messages left the log before they could be read", table)
            )
        after = after.with_table(changed)
    window = replace(window, dead=window.dead + report.headless, holes=window.holes + holes)
    after = replace(
        after,
        position=max(state.position, report.stop),
        window=window,
        # The epoch of another position would report a truncation that is none: rather not known.
        leader_epoch=report.leader_epoch if report.stop > state.position else state.leader_epoch,
    )
    return after, tuple(alarms)


def _seal_table(state: StreamState, scan: TableScan, stop: int, resumed: bool, now_ms: int) -> tuple[TableState, int]:
    """The table after the scan, and how many of its pending messages turned out to be gone from the log."""
    before = state.table(scan.table)
    if resumed and (before.block is not None or before.cursor is None):
        raise ReportRejected(f"table {scan.table}: resumed, but it is in flight or does not lag")
    taken = scan.block.messages if scan.block else 0
    pending = before.pending + scan.seen - taken - scan.dead
    eligible = before.block is None and (before.cursor is None or resumed)
    if pending < 0 or (not eligible and (scan.block is not None or scan.dead)):
        raise ReportRejected(f"table {scan.table}: took {taken} and {scan.dead} dead, not its to take")
    if scan.block is not None:
        _check_block(state, before, scan, stop)
    if eligible or before.cursor is None:
        _check_cursor(state, before, scan, stop)
    block = before.block
    if scan.block is not None:
        b = scan.block
        intent = InFlight(b.begin, b.end, b.messages, b.revision, b.crc, now_ms)
        block = Block(intent, Stage.SEALED, fresh=True)
    if before.cursor is not None and not resumed:
        return replace(before, pending=pending), 0
    if scan.cursor is not None:
        return TableState(scan.table, block, scan.cursor, pending), 0
    if resumed and pending and stop < state.position:
        assert before.cursor is not None
        # A scan that another table ended early may not have reached this table's cursor: it never moves back.
        return TableState(scan.table, block, max(stop, before.cursor), pending), 0
    if pending and not resumed:
        raise ReportRejected(f"table {scan.table}: {pending} messages are neither in a block nor lagging")
    return TableState(scan.table, block, None, 0), pending


def _check_block(state: StreamState, before: TableState, scan: TableScan, stop: int) -> None:
    """I3 and the sanity of a block: it begins at or after the table's cursor and ends inside the scan."""
    block = scan.block
    assert block is not None
    lowest = before.cursor if before.cursor is not None else state.position
    span = block.end - block.begin + 1
    if not (lowest <= block.begin <= block.end < stop) or not (1 <= block.messages <= span):
        raise ReportRejected(f"table {scan.table}: block [{block.begin}, {block.end}] does not fit {lowest}..{stop}")


def _check_cursor(state: StreamState, before: TableState, scan: TableScan, stop: int) -> None:
    """A new cursor never points at what is stored or in flight. Example: P=10, block [10, 14]: 15 or later."""
    if scan.cursor is None:
        return
    lowest = before.cursor if before.cursor is not None else state.position
    if scan.block is not None:
        lowest = scan.block.end + 1
    if not lowest <= scan.cursor < stop:
        raise ReportRejected(f"table {scan.table}: cursor {scan.cursor} does not lie in {lowest}..{stop - 1}")
