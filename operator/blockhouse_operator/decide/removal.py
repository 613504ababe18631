"""How a replica that is not wanted any more goes: drained, forgotten by ZooKeeper, then deleted. One at a time.

Each step is decided from what is there, so a restarted operator goes on where another one stopped. The StatefulSet goes
last: as long as it exists, somebody knows that the replica may still be registered in ZooKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.decide.rollout import WELL, Hold
from blockhouse_operator.decide.seen import ReplicaSeen, ShardSeen


@dataclass(frozen=True, slots=True)
class Drain:
    """Scale its StatefulSet to zero: the pod ends in order, its streams and blocks are handed over."""

    replica: str
    why: str


@dataclass(frozen=True, slots=True)
class Unregister:
    """Remove it from ZooKeeper, as far as ClickHouse's replication knows it. Never while it is active there."""

    replica: str
    why: str


@dataclass(frozen=True, slots=True)
class DeleteReplica:
    """Delete its objects; its volume claim as the deletion policy says."""

    replica: str
    why: str


RemovalStep = Drain | Unregister | DeleteReplica | Hold


def plan_removal(spec: ClickHouseShardIngestSpec, seen: ShardSeen) -> tuple[RemovalStep, ...]:
    """Steps for the first replica to go, in order; the rest wait for their turn."""
    if not seen.surplus:
        return ()
    going = min(seen.surplus, key=lambda replica: (replica.scale != 0, replica.pod is not None, replica.name))
    if going.scale is None or (going.scale == 0 and going.pod is None):
        return _forget(spec, seen, going)
    if going.scale == 0:
        return (Hold(Reason.DRAINING, f"replica {going.name} is ending"),)
    return (_may_drain(spec, seen, going) or Drain(going.name, "it is not in the spec any more"),)


def _may_drain(spec: ClickHouseShardIngestSpec, seen: ShardSeen, going: ReplicaSeen) -> Hold | None:
    states = seen.states()
    well = sum(states.get(replica.name) in WELL for replica in spec.replicas)
    if seen.turn is not None:
        return Hold(Reason.ROLLING_OUT, f"replica {going.name} is not wanted; {seen.turn.replica} is restarting first")
    if well < spec.quorum:
        return Hold(
            Reason.NOT_ENOUGH_REPLICAS,
            f"replica {going.name} is not wanted; {well} others are well, the quorum is {spec.quorum}",
        )
    return None


def _forget(spec: ClickHouseShardIngestSpec, seen: ShardSeen, going: ReplicaSeen) -> tuple[RemovalStep, ...]:
    delete = DeleteReplica(going.name, "it has ended and is registered nowhere")
    if spec.clickhouse.managed is None:
        return (delete,)
    if seen.zookeeper_trouble:
        return (Hold(Reason.ZOOKEEPER_UNREACHABLE, f"replica {going.name} stays registered: {seen.zookeeper_trouble}"),)
    return (Unregister(going.name, "it has ended"), delete)
