"""Whether a run has shown that nothing is lost and nothing doubled. Pure, but for the values it is given.

It must never pass for want of harm: a run in which no fault was carried out, or no block replayed, proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from blockhouse.contract.aggregator import Phase, StatusPage
from blockhouse.contract.verifier import AnomalyReport, Verdict
from blockhouse_aggregator.audit import AuditReport
from e2e.chaos.alerting import AlertReport
from e2e.chaos.injecting import Injected
from e2e.kit.checks import Check, exact


@dataclass(frozen=True, slots=True)
class Audited:
    """The audit of one shard, and how many rows are to be on each of its replicas."""

    shard: int
    report: AuditReport
    rows: int


def judge(
    audits: Sequence[Audited],
    *,
    replicas: int,
    tables: Collection[str],
    replays: int | None,
    surplus: int,
    faults: Sequence[Injected],
    statuses: Mapping[str, StatusPage | None],
    verified: Verdict,
    anomalies: Sequence[AnomalyReport],
    crashes: Sequence[str],
    isolation: Sequence[Check] = (),
    alerts: Sequence[Check] = (),
) -> tuple[Check, ...]:
    """All checks, in the order of the report. `replicas` are those of one shard; `replays` is None when none
    is demanded; `verified` is the verifier's verdict about everything that was committed, `anomalies` are all it has
    found, `crashes` internal errors found in the logs, `isolation` the checks of shards during each other's outages,
    `alerts` those of the alerts."""
    failed = [f"{injected.fault}: {injected.error}" for injected in faults if injected.error]
    done = len(faults) - len(failed)
    wrong = standing_still(statuses)
    replayed = [] if replays is None else [Check("at least one block was replayed", replays > 0, f"{replays} replays")]
    return (
        *(_exact(audited, replicas, tables, len(audits)) for audited in audits),
        Check("no aggregator found rows stored twice", surplus == 0, f"{surplus} rows too many"),
        *replayed,
        Check("every fault was carried out", bool(faults) and not failed, "; ".join(failed) or f"{done} faults"),
        watched(verified, 2 * replicas * len(audits), anomalies),
        *isolation,
        *alerts,
        Check("everything resumed by itself", not wrong, "; ".join(wrong) or "no stream stopped, no table blocked"),
        Check("no aggregator failed internally", not crashes, "; ".join(crashes[:3]) or "no internal error logged"),
    )


def judge_alerts(demanded: Collection[str], report: AlertReport, faults: Sequence[Injected]) -> tuple[Check, ...]:
    """One check for what had to fire, where something had to; one for what fired at all: none before the first fault
    had begun, and none to the end; and one that anything could fire."""
    fired, unscraped = report.fired, report.unscraped
    names = sorted({firing.alert for firing in fired})
    missing = sorted(set(demanded) - set(names))
    begun = min((fault.began for fault in faults), default=0.0)
    early = [firing for firing in fired if firing.began < begun]
    wrong = [f"{firing.alert} fired at {firing.began:.1f} s, before any fault" for firing in early]
    wrong += [f"{firing.alert} still fires" for firing in fired if firing.ended is None]
    seen = f"{len(names)} alerts: {', '.join(names)}" if names else "no alert fired"
    of_demand = Check(
        "every alert that had to fire fired",
        not missing,
        seen + (f"; never fired: {', '.join(missing)}" if missing else ""),
    )
    of_all = Check("no alert fired without a fault, and each was resolved", not wrong, "; ".join(wrong) or seen)
    silent = ", ".join(unscraped)
    of_sight = Check("Prometheus scrapes every aggregator and the verifier", not unscraped, silent or "all of them")
    return (of_demand, of_all, of_sight) if demanded else (of_all, of_sight)


def _exact(audited: Audited, replicas: int, tables: Collection[str], shards: int) -> Check:
    check = exact(audited.report, replicas, tables, audited.rows)
    return check if shards == 1 else replace(check, demand=f"{check.demand} of shard {audited.shard}")


def rows_in_kafka(report: AuditReport) -> int:
    """More than were acknowledged, when brokers died with the answer: those are loaded like all others."""
    replicas = {result.replica for result in report.tables}
    return max((sum(r.rows for r in report.tables if r.replica == name) for name in replicas), default=0)


def watched(verified: Verdict, streams: int, anomalies: Sequence[AnomalyReport] = ()) -> Check:
    """The verifier watches the commits of every stream, from outside, by the rules of docs/protocol.md alone.

    That a stream stalled while faults lasted is true and no anomaly of the protocol, once it has resumed.
    """
    commits = verified.commits
    stood = [anomaly for anomaly in anomalies if anomaly.kind == "stalled" and anomaly.ended]
    wrong = [anomaly for anomaly in anomalies if anomaly not in stood]
    seen = verified.verdict == ("anomalies" if anomalies else "clean") and verified.streams == streams
    return Check(
        "the verifier found no anomaly in what was committed",
        not wrong and seen and commits >= streams,
        f"{verified.verdict}: {commits:,} commits of {verified.streams} of {streams} streams"
        + (f"; {len(stood)} times one stalled for long and resumed" if stood else "")
        + "".join(f"; {each.kind} in {each.stream}: {each.message}" for each in wrong[:3]),
    )


def standing_still(statuses: Mapping[str, StatusPage | None]) -> list[str]:
    """Streams that are stopped and blocks that are blocked, in the status pages of those replicas that answered."""
    pages = {replica: page for replica, page in statuses.items() if page is not None}
    return [*_stopped(pages), *_blocked(pages)]


def _stopped(pages: Mapping[str, StatusPage]) -> list[str]:
    return [
        f"{stream.stream} stopped on {replica}: "
        + (f"{stream.stopped.reason}: {stream.stopped.message}" if stream.stopped else "")
        for replica, page in pages.items()
        for stream in page.streams
        if stream.state is Phase.STOPPED
    ]


def _blocked(pages: Mapping[str, StatusPage]) -> list[str]:
    return [
        f"{block.table} blocked in {stream.stream}: {block.reason}"
        for page in pages.values()
        for stream in page.streams
        for block in stream.blocks
        if block.stage == "blocked"
    ]
