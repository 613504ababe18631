"""What a run had to show, and whether it did: printed line by line, so that a failed run names what did not hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from blockhouse_aggregator.audit import AuditReport


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that had to hold, and what was found."""

    demand: str
    holds: bool
    found: str


def exact(report: AuditReport, replicas: int, tables: Collection[str], rows: int) -> Check:
    """Exact, and about everything: an audit of too few tables, replicas or rows is none."""
    pairs = {(result.table, result.replica) for result in report.tables if result.exists}
    names = {replica for _, replica in pairs}
    everything = pairs == {(table, replica) for table in tables for replica in names} and len(names) == replicas
    stored = {name: sum(r.stored for r in report.tables if r.replica == name) for name in sorted(names)}
    lost = sum(result.missing for result in report.tables)
    doubled = sum(result.duplicates for result in report.tables)
    found = ", ".join(f"{name} {count:,}" for name, count in stored.items())
    return Check(
        "every produced row is stored exactly once on every replica",
        report.exact and everything and set(stored.values()) == {rows},
        f"{rows:,} produced; stored: {found or 'nothing'}; {lost:,} lost, {doubled:,} duplicates{_values(report)}",
    )


def _values(report: AuditReport) -> str:
    if report.values is None:
        return ""
    wrong = sum(table.wrong.total() for table in report.values.tables)
    return f"; {report.values.judged:,} values compared, {wrong:,} wrong"


def show_checks(console: Console, checks: Sequence[Check]) -> None:
    """Print one line per check."""
    for check in checks:
        mark = Text("  ok    ", "green") if check.holds else Text("  FAILED", "bold red")
        console.print(mark, Text(f"{check.demand}: {check.found}"), soft_wrap=True)
