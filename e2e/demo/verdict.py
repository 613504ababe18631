"""Whether the demonstration has shown what it set out to show. Pure: from the audit, the faults and the counters.

It must never pass for want of a fault: a run in which nothing was killed at the right moment proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blockhouse_aggregator.audit import AuditReport
from e2e.demo.faults import Frozen, Killed


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that had to hold, and what was found."""

    wanted: str
    holds: bool
    found: str


def judge(
    report: AuditReport,
    *,
    replicas: int,
    tables: Collection[str],
    rows: int,
    killed: Sequence[Killed],
    frozen: Sequence[Frozen],
    replays: int,
    deduplicated: int,
    streams: int,
    verified: Mapping[str, Any],
) -> tuple[Check, ...]:
    """All checks, in the order in which they are told. `rows` is how many the brokers acknowledged to the producer,
    `verified` the verifier's verdict about everything that was committed, `streams` how many it had to watch."""
    between = sum(kill.between_commit_and_acknowledgement for kill in killed)
    beyond = sum(freeze.beyond_session for freeze in frozen)
    return (
        exact(report, replicas, tables, rows),
        Check(
            "an aggregator was killed between commit and acknowledgement",
            between > 0,
            f"{between} of {len(killed)} kills",
        ),
        Check(
            "an aggregator was frozen until others had taken over, then thawed",
            beyond > 0,
            f"{beyond} of {len(frozen)} freezes",
        ),
        Check(
            "a replayed block was recognised as stored",
            deduplicated > 0,
            f"{deduplicated} of {replays} replayed blocks",
        ),
        _verifier(verified, streams),
    )


def _verifier(verified: Mapping[str, Any], streams: int) -> Check:
    """Clean, and about every commit of every stream: a verifier that has not seen them says nothing."""
    clusters = verified["coverage"].values()
    commits, unseen = sum(c["commits"] for c in clusters), sum(c["unseen"] for c in clusters)
    whole = verified["streams"] == streams and commits >= streams and unseen == 0
    latest = verified["latest"]
    return Check(
        "the verifier saw every commit and found no anomaly",
        verified["verdict"] == "clean" and whole,
        f"{verified['verdict']}: {commits:,} commits of {verified['streams']} of {streams} streams, {unseen} not seen"
        + (f"; {latest['kind']} in {latest['stream']}: {latest['message']}" if latest else ""),
    )


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
        f"{rows:,} produced; stored: {found or 'nothing'}; {lost:,} lost, {doubled:,} duplicates",
    )
