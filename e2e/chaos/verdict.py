"""Whether a run has shown that nothing is lost and nothing doubled. Pure, but for the values it is given.

It must never pass for want of harm: a run in which no fault was carried out, or no block replayed, proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blockhouse_aggregator.audit import AuditReport
from e2e.chaos.injecting import Injected
from e2e.demo.verdict import Check, exact


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
    statuses: Mapping[str, Mapping[str, Any]],
    verified: Mapping[str, Any],
    anomalies: Sequence[Mapping[str, Any]],
    crashes: Sequence[str],
    isolation: Sequence[Check] = (),
) -> tuple[Check, ...]:
    """All checks, in the order in which they are told. `replicas` are those of one shard; `replays` is None when none
    is demanded; `verified` is the verifier's verdict about everything that was committed, `anomalies` are all it has
    found, `crashes` internal errors found in the logs, `isolation` what was said of shards in each other's trouble."""
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
        Check("everything resumed by itself", not wrong, "; ".join(wrong) or "no stream stopped, no table blocked"),
        Check("no aggregator failed internally", not crashes, "; ".join(crashes[:3]) or "no internal error logged"),
    )


def _exact(audited: Audited, replicas: int, tables: Collection[str], shards: int) -> Check:
    check = exact(audited.report, replicas, tables, audited.rows)
    return check if shards == 1 else replace(check, wanted=f"{check.wanted} of shard {audited.shard}")


def rows_in_kafka(report: AuditReport) -> int:
    """More than were acknowledged, when brokers died with the answer: those are loaded like all others."""
    replicas = {result.replica for result in report.tables}
    return max((sum(r.rows for r in report.tables if r.replica == name) for name in replicas), default=0)


def watched(verified: Mapping[str, Any], streams: int, anomalies: Sequence[Mapping[str, Any]] = ()) -> Check:
    """The verifier watches the commits of every stream, from outside, by the rules of docs/protocol.md alone.

    That a stream stood still while faults went on is true and no anomaly of the protocol, once it has gone on.
    """
    commits = sum(cluster["commits"] for cluster in verified["coverage"].values())
    stood = [anomaly for anomaly in anomalies if anomaly["kind"] == "stalled" and anomaly["ended"]]
    wrong = [anomaly for anomaly in anomalies if anomaly not in stood]
    seen = verified["verdict"] == ("anomalies" if anomalies else "clean") and verified["streams"] == streams
    return Check(
        "the verifier found no anomaly in what was committed",
        not wrong and seen and commits >= streams,
        f"{verified['verdict']}: {commits:,} commits of {verified['streams']} of {streams} streams"
        + (f"; {len(stood)} times one stood still for long and went on" if stood else "")
        + "".join(f"; {each['kind']} in {each['stream']}: {each['message']}" for each in wrong[:3]),
    )


def standing_still(statuses: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Streams that are stopped and blocks that are blocked, in the status pages of replicas."""
    return [*_stopped(statuses), *_blocked(statuses)]


def _stopped(statuses: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"{stream['stream']} stopped on {replica}: {stream.get('stopped')}"
        for replica, status in statuses.items()
        for stream in status.get("streams", ())
        if stream["state"] == "STOPPED"
    ]


def _blocked(statuses: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"{block['table']} blocked in {stream['stream']}: {block['reason']}"
        for status in statuses.values()
        for stream in status.get("streams", ())
        for block in stream.get("inFlight", ())
        if block["stage"] == "blocked"
    ]
