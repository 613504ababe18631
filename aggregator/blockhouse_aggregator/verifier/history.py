"""The story of a stream as lines for people: who committed what when, and what is wrong with it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from blockhouse.metadata.ebay import EbayMetadata
from blockhouse.metadata.reading import NOTHING, Entry, Reading
from blockhouse_aggregator.verifier.anomaly import Finding
from blockhouse_aggregator.verifier.checks.sequence import Known


@dataclass(frozen=True, slots=True)
class Line:
    """One commit. `changes` has per table what the one before it did not have."""

    number: str
    writer: str
    offset: int
    position: str
    counts: str
    changes: tuple[str, ...]
    findings: tuple[str, ...]


def line_of(
    before: Known | None,
    after: Known | None,
    offset: int,
    findings: tuple[Finding, ...],
    names: Mapping[str, str],
) -> Line:
    """`after` is None when the commit has no readable metadata."""
    wrong = tuple(_finding(finding, names) for finding in findings)
    if isinstance(after, Reading):
        counts = (
            f"{after.reference} + {after.sealed} sealed + {after.dead} dead + {after.holes} holes + "
            f"{after.pending} pending"
        )
        old = before.tables if isinstance(before, Reading) else {}
        changes = tuple(_changes(old, after.tables, names))
        return Line(str(after.seq), after.replica, offset, str(after.position), counts, changes, wrong)
    if isinstance(after, EbayMetadata):
        shown = tuple(f"{n} [{t.begin}, {t.end}] of {t.count}" for n, t in after.tables.items() if t.in_flight)
        return Line("", after.replica or "", offset, "", f"version {after.version}", shown, wrong)
    return Line("", "", offset, "", "", (), wrong)


def _finding(finding: Finding, names: Mapping[str, str]) -> str:
    table = f" {names.get(finding.table, finding.table)}" if finding.table else ""
    return f"{finding.kind}{table} [{finding.first}, {finding.last}]: {finding.message}"


def _changes(old: Mapping[int, Entry], new: Mapping[int, Entry], names: Mapping[str, str]) -> Iterator[str]:
    for table in sorted(old.keys() | new.keys()):
        was, now = old.get(table, NOTHING), new.get(table, NOTHING)
        name = names.get(str(table), f"table {table}")
        if was[0] >= 0 and was[:5] != now[:5]:
            yield f"{name} [{was[0]}, {was[1]}] acknowledged"
        if now[0] >= 0 and was[:5] != now[:5]:
            yield f"{name} [{now[0]}, {now[1]}] in flight, {now[2]} messages"
        if was[5:] != now[5:]:
            yield f"{name} lags from {now[5]}, {now[6]} pending" if now[5] >= 0 else f"{name} caught up"
