"""The last page: the audit, the faults and their effects, and where to look next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from blockhouse_aggregator.audit import AuditReport
from blockhouse_aggregator.audit.rendering import render
from e2e.demo.faults import Frozen, Killed
from e2e.kit.tally import Tally


def show_audit(console: Console, report: AuditReport) -> None:
    """One line per table: what Kafka holds, what each replica holds. The whole report when that is not the same."""
    replicas = sorted({result.replica for result in report.tables})
    title = f"audit: topic {report.topic} of both Kafka clusters against every replica"
    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column("rows of table", no_wrap=True)
    for name in ("messages", "in Kafka", *(f"on {r}" for r in replicas), "lost", "duplicates"):
        grid.add_column(name, justify="right")
    for table in sorted({result.table for result in report.tables}):
        results = {result.replica: result for result in report.tables if result.table == table}
        first = next(iter(results.values()))
        counts = (first.messages, first.rows, *(results[r].stored for r in replicas))
        faults = (sum(r.missing for r in results.values()), sum(r.duplicates for r in results.values()))
        grid.add_row(table, *(f"{count:,}" for count in (*counts, *faults)))
    console.print(grid)
    if not report.exact:
        console.print(render(report))


def show_faults(console: Console, killed: Sequence[Killed], frozen: Sequence[Frozen], tally: Tally) -> None:
    for kill in killed:
        block = kill.block
        recorded = "in flight" if kill.recorded else "NOT in flight"
        console.print(
            f"killed: aggregator {kill.replica} after {kill.at:.1f} s of load; block [{block.begin}, {block.end}] of "
            f"{block.table} from {block.stream} was {recorded} in Kafka's metadata, {kill.rows_stored:,} of its rows "
            f"were in ClickHouse, their quorum was {'not met' if kill.quorum_pending else 'met'}",
            highlight=False,
            soft_wrap=True,
        )
    for freeze in frozen:
        console.print(
            f"frozen: aggregator {freeze.replica} after {freeze.at:.1f} s of load, for {freeze.seconds:.1f} s; "
            f"{freeze.taken_over} of its {freeze.streams} streams were taken over before it was thawed",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        f"blocks: {tally.total('blocks'):,} acknowledged, {tally.total('replays'):,} replayed, of these "
        f"{tally.total('deduplicated'):,} deduplicated, {tally.total('provenance_decisions'):,} decided by provenance",
        highlight=False,
        soft_wrap=True,
    )


def show_next(console: Console, folder: Path, kept: bool, killed: Sequence[Killed], names: Mapping[int, str]) -> None:
    """Commands to paste. The servers are down by then; with `kept` they can be started on their data again."""
    tables = ",".join(f"{number}={name}" for number, name in sorted(names.items()))
    console.print("\nwhere to look next", style="bold")
    lines = [f"logs and configurations   {folder}/aggregator-*/, messages sent: {folder}/manifest.jsonl"]
    for kill in killed[:1]:
        text = kill.committed
        command = f"blockhouse metadata decode --offset {text.offset} --names {tables} {shlex.quote(text.metadata)}"
        lines.append(f"what {kill.replica} left in Kafka  {command}")
    if kept:
        lines.append(f"the servers again         blockhouse stack up --folder {folder}/stack")
    else:
        lines.append('the servers again         make demo ARGS="--keep" keeps their data')
    lines.append("how it works              docs/protocol.md, docs/metadata.md, docs/clickhouse.md, docs/demo.md")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def with_names(report: AuditReport, names: Mapping[str, str]) -> AuditReport:
    """The report with replicas called by their names, not their addresses."""
    return replace(report, tables=tuple(replace(t, replica=names.get(t.replica, t.replica)) for t in report.tables))
