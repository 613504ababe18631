"""Which reassignment of a Kafka cluster goes first, and whether one that is done is done for good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from blockhouse.fleet.frozen import FrozenPlan, Seen, Verdict
from blockhouse_operator.api.reassignment import KafkaReassignmentSpec, KafkaReassignmentStatus
from blockhouse_operator.api.resource import Object
from blockhouse_operator.decide.reassignment import Phase, Standing


@dataclass(frozen=True, slots=True)
class Candidate:
    """A reassignment in the queue of its Kafka cluster."""

    place: str
    """namespace/name"""
    cluster_id: str
    created: str
    executing: bool
    approved: bool
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Queue:
    """All reassignments of all clusters; `leaving` are deleted ones whose moves end, by cluster id."""

    candidates: tuple[Candidate, ...]
    leaving: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    """Namespaces of whose reassignments nothing is known."""


def goes_first(queue: Queue, me: str, cluster_id: str) -> str:
    """Which other reassignment goes before `me`; empty when it is my own time. The one that executes, else the oldest
    that is approved."""
    if queue.leaving.get(cluster_id, me) != me:
        return queue.leaving[cluster_id]
    rivals = [
        other
        for other in queue.candidates
        if other.cluster_id == cluster_id and not other.finished and (other.approved or other.executing)
    ]
    ordered = sorted(rivals, key=lambda other: (not other.executing, other.created, other.place))
    if ordered and ordered[0].place != me:
        return ordered[0].place
    # One that executes went first when that was decided; one that does not must not begin beside one that is not seen.
    if queue.unread and not (ordered and ordered[0].executing):
        return f"what may be in namespace {', '.join(queue.unread)}, which cannot be read,"
    return ""


def parse_status(live: Object) -> KafkaReassignmentStatus:
    """The status, or an empty one where another version wrote what cannot be read; total."""
    try:
        return KafkaReassignmentStatus.model_validate(live.get("status") or {})
    except ValueError:
        return KafkaReassignmentStatus()


def left_on(spec: KafkaReassignmentSpec, standing: Standing, seen: Seen) -> tuple[int, ...]:
    """Brokers to be replaced that hold replicas although the plan is done: of topics made meanwhile."""
    if spec.operation != "ReplaceBrokers" or not standing.done:
        return ()
    held = {
        id
        for key, state in seen.partitions.items()
        if key not in standing.verdicts or standing.verdicts[key] is not Verdict.GONE
        for id in state.replicas
    }
    return tuple(sorted(held & set(spec.leaving))) if not (spec.topics.include or spec.topics.exclude) else ()


def absent_from(plan: FrozenPlan, seen: Seen) -> tuple[int, ...]:
    """Brokers that are not alive, to which partitions of the plan move."""
    arriving = {broker for key, move in seen.moves.items() if plan.concerns(key, move.target) for broker in move.adding}
    return tuple(sorted(arriving - set(seen.live)))


def strangers_to(spec: KafkaReassignmentSpec, seen: Seen) -> tuple[int, ...]:
    """Brokers of `spec.leaving` that are not alive and hold nothing: never there, or replaced long ago."""
    held = {id for state in seen.partitions.values() for id in state.replicas}
    return tuple(sorted(set(spec.leaving) - held - set(seen.live)))


def candidate_of(live: Object) -> Candidate:
    """A resource as the API server lists it, as far as the queue needs it; total."""
    meta, status, spec = live["metadata"], parse_status(live), live.get("spec") or {}
    return Candidate(
        place=f"{meta['namespace']}/{meta['name']}",
        cluster_id=status.cluster_id,
        created=meta.get("creationTimestamp", ""),
        executing=status.phase == Phase.EXECUTING.value,
        approved=bool(status.plan.hash) and spec.get("approvedPlan") == status.plan.hash,
        finished=status.phase == Phase.COMPLETED.value,
    )
