"""Whether the demonstration has shown what it set out to show. Pure: from the audit, the faults and the counters.

It must never pass for lack of a fault: a run in which nothing was killed at the right moment proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from blockhouse.contract.verifier import Verdict
from blockhouse_aggregator.audit import AuditReport
from e2e.demo.faults import Frozen, Killed
from e2e.kit.checks import Check, exact


def judge(
    report: AuditReport,
    *,
    replicas: int,
    tables: Collection[str],
    rows: int,
    killed: Sequence[Killed],
    frozen: Sequence[Frozen],
    replays: int,
    recognised: int,
    streams: int,
    verified: Verdict,
) -> tuple[Check, ...]:
    """All checks, in the order in which they are printed. `rows` is how many the brokers acknowledged to the producer,
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
            recognised > 0,
            f"{recognised} of {replays} replayed blocks",
        ),
        _verifier(verified, streams),
    )


def _verifier(verified: Verdict, streams: int) -> Check:
    """Clean, and about every commit of every stream: a verifier that has not seen them proves nothing."""
    commits, unseen, latest = verified.commits, verified.unseen, verified.latest
    whole = verified.streams == streams and commits >= streams and unseen == 0
    return Check(
        "the verifier saw every commit and found no anomaly",
        verified.verdict == "clean" and whole,
        f"{verified.verdict}: {commits:,} commits of {verified.streams} of {streams} streams, {unseen} not seen"
        + (f"; {latest.kind} in {latest.stream}: {latest.message}" if latest is not None else ""),
    )
