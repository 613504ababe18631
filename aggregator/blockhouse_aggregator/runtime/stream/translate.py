"""Between the gate's words (table names) and the protocol's (table ids). No decisions."""

from __future__ import annotations

from collections.abc import Mapping

from blockhouse_aggregator.gate.messages import BuiltBlock, Sealed, TableReport
from blockhouse_aggregator.protocol.events import ScanReport, SealedBlock, TableScan


def scan_report(sealed: Sealed, ids: Mapping[str, int]) -> ScanReport:
    """What a task sealed, for `protocol.step`. `ids` has every table of the report."""
    return ScanReport(
        start=sealed.start,
        stop=sealed.stop,
        tables=tuple(_table_scan(table, ids[table.table]) for table in sealed.tables),
        headless=sealed.headless,
        leader_epoch=sealed.leader_epoch,
    )


def _table_scan(report: TableReport, table: int) -> TableScan:
    block = sealed_block(report.block) if report.block is not None else None
    return TableScan(table, report.seen, block, report.dead, report.cursor)


def sealed_block(block: BuiltBlock) -> SealedBlock:
    return SealedBlock(block.begin, block.end, block.messages, block.revision, block.crc)
