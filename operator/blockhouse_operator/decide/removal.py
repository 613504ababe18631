"""How a replica that is not in the spec leaves: drained, unregistered from ZooKeeper, then deleted. One at a time.

It leaves only when at least `quorum` of the remaining replicas have everything it has: before it is drained, and again
before anything of it is deleted. Each step is decided from what is there, so a restarted operator continues where
another one stopped. The volume claim is deleted last: while it exists, the data exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.labels import ACCEPT_DATA_LOSS
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.decide.deferred import RestartDeferred, awaits_end
from blockhouse_operator.decide.replication import copies
from blockhouse_operator.decide.rollout import WELL
from blockhouse_operator.decide.seen import ReplicaSeen, ShardSeen
from blockhouse_operator.decide.words import counted, shown_bytes


@dataclass(frozen=True, slots=True)
class Drain:
    """Scale its StatefulSet to zero: the pod ends in order, its streams and blocks are handed over."""

    replica: str
    why: str


@dataclass(frozen=True, slots=True)
class Unregister:
    """Remove it from ZooKeeper, as far as ClickHouse's replication knows it. Never while it is active there.

    With `paths` of these tables only."""

    replica: str
    why: str
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteReplica:
    """Delete its objects; its volume claim by the deletion policy, and last."""

    replica: str
    why: str


RemovalStep = Drain | Unregister | DeleteReplica | RestartDeferred


def plan_removal(spec: ClickHouseShardIngestSpec, seen: ShardSeen) -> tuple[RemovalStep, ...]:
    """Steps for the first replica to leave, in order; the others wait until it has left."""
    if not seen.surplus:
        return ()
    leaving = first_to_leave(seen.surplus)
    if leaving.pod is None and not leaving.scale:
        return _forget(spec, seen, leaving)
    if leaving.scale == 0:
        return (awaits_end(seen, leaving, Reason.DRAINING, f"replica {leaving.name} is ending"),)
    deferred = _may_drain(spec, seen, leaving) or not_elsewhere(spec, seen, leaving.name)
    return (deferred or Drain(leaving.name, "it is not in the spec"),)


def first_to_leave(surplus: Sequence[ReplicaSeen]) -> ReplicaSeen:
    """Of those that are to leave, the one furthest on its way; `surplus` is not empty."""
    return min(surplus, key=lambda replica: (bool(replica.scale), replica.pod is not None, replica.name))


def _may_drain(spec: ClickHouseShardIngestSpec, seen: ShardSeen, leaving: ReplicaSeen) -> RestartDeferred | None:
    states = seen.states()
    well = sum(states.get(replica.name) in WELL for replica in spec.replicas)
    if seen.begun is not None:
        return RestartDeferred(
            Reason.ROLLING_OUT, f"replica {leaving.name} is to be removed; {seen.begun.replica} is restarting first"
        )
    if seen.rebuild is not None and seen.rebuild.begun is not None:
        first = seen.rebuild.begun.replica
        return RestartDeferred(
            Reason.REBUILDING, f"replica {leaving.name} is to be removed; {first} is being rebuilt first"
        )
    if well < spec.quorum:
        return RestartDeferred(
            Reason.NOT_ENOUGH_REPLICAS,
            f"replica {leaving.name} is to be removed; {well} others are well, the quorum is {spec.quorum}",
        )
    return None


def not_elsewhere(spec: ClickHouseShardIngestSpec, seen: ShardSeen, replica: str) -> RestartDeferred | None:
    """Why the data of a replica is not known to be safe without it; None when `quorum` others have everything.

    Only a person can overrule it, by an annotation of the shard that names the replica.
    """
    if spec.clickhouse.managed is None or seen.accepted_loss == replica:
        return None
    if seen.zookeeper_trouble:
        return RestartDeferred(Reason.ZOOKEEPER_UNREACHABLE, f"replica {replica} stays: {seen.zookeeper_trouble}")
    if seen.replication is None:
        return RestartDeferred(Reason.DRAINING, f"replica {replica} stays: the state of replication is not known yet")
    way_out = f"to lose it knowingly, annotate the shard's ClickHouseShardIngest with {ACCEPT_DATA_LOSS}={replica}"
    if local := {table: size for table, size in seen.replication.local.items() if size}:
        shown = ", ".join(f"{table} ({shown_bytes(size)})" for table, size in sorted(local.items())[:4])
        return RestartDeferred(
            Reason.DRAINING, f"replica {replica} alone has {shown}, not replicated: copy it; {way_out}"
        )
    if unknown := seen.replication.unknown:
        tables = ", ".join(unknown[:4])
        return RestartDeferred(
            Reason.DRAINING,
            f"replica {replica} stays: its path in ZooKeeper of {tables} is not known while no server of the shard "
            f"answers; {way_out}",
        )
    others = [other.name for other in spec.replicas if other.name != replica]
    found = copies(replica, others, spec.quorum, seen.replication)
    if len(found.complete) >= spec.quorum:
        return None
    lacking = "; ".join(f"{other} {why}" for other, why in sorted(found.lacking.items())[:4])
    left = f", {found.left} to copy" if found.left else ""
    return RestartDeferred(
        Reason.DRAINING,
        f"replica {replica} stays until {counted(spec.quorum, 'other has', 'others have')} all of its data: "
        f"{len(found.complete)} so far{left}; {lacking}; {way_out}",
    )


def _forget(spec: ClickHouseShardIngestSpec, seen: ShardSeen, leaving: ReplicaSeen) -> tuple[RemovalStep, ...]:
    delete = DeleteReplica(leaving.name, "it has ended and is registered nowhere")
    if spec.clickhouse.managed is None:
        return (delete,)
    if seen.zookeeper_trouble:
        return (
            RestartDeferred(
                Reason.ZOOKEEPER_UNREACHABLE, f"replica {leaving.name} stays registered: {seen.zookeeper_trouble}"
            ),
        )
    deferred = not_elsewhere(spec, seen, leaving.name)
    return (deferred,) if deferred else (Unregister(leaving.name, "it has ended"), delete)
