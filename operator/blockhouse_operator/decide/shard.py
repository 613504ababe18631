"""A shard at one moment -> what to do next, and what to report about it. Pure and total."""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse_operator.api.conditions import Condition, Reason
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.api.status import (
    ClickHouseShardIngestStatus,
    ReplicaStatus,
    StreamCount,
    TableStatus,
    TopicStatus,
)
from blockhouse_operator.decide.deferred import DEFERRED, RestartDeferred
from blockhouse_operator.decide.rebuild import plan_rebuild
from blockhouse_operator.decide.removal import plan_removal
from blockhouse_operator.decide.rollout import BeginStep, EndStep, Restart, RestartAggregator, plan_rollout
from blockhouse_operator.decide.seen import ReplicaSeen, ShardSeen, State
from blockhouse_operator.decide.shard_conditions import shard_conditions
from blockhouse_operator.decide.steps import Step
from blockhouse_operator.decide.streams import expected_streams


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Steps in the order in which they are taken, each with its reason, and what holds others back."""

    steps: tuple[Step, ...]
    deferred: tuple[RestartDeferred, ...]

    @property
    def settled(self) -> bool:
        """Nothing to do, and nothing waited for but what people hold back."""
        return not self.steps and all(step.reason in DEFERRED for step in self.deferred)


def plan_shard(spec: ClickHouseShardIngestSpec, seen: ShardSeen) -> ShardPlan:
    """What to do now. A replica without its data first, then removal: what leaves need not be restarted."""
    rebuild = plan_rebuild(spec, seen)
    acts = any(not isinstance(step, RestartDeferred) for step in rebuild)
    removal = plan_removal(spec, seen)
    decided = [*rebuild, *(step for step in removal if isinstance(step, RestartDeferred) or not acts)]
    rollout = plan_rollout(spec, seen)
    if seen.refused or seen.taken:
        return ShardPlan((), ())
    if spec.stop:
        return ShardPlan((EndStep(seen.begun.replica, "spec.stop is true"),) if seen.begun is not None else (), ())
    steps: list[Step] = [step for step in decided if not isinstance(step, RestartDeferred)]
    deferred = [step for step in decided if isinstance(step, RestartDeferred)]
    if isinstance(rollout, RestartDeferred):
        deferred.append(rollout)
    elif rollout is not None and not (steps and isinstance(rollout, (BeginStep, Restart, RestartAggregator))):
        steps.append(rollout)
    return ShardPlan(tuple(steps), tuple(deferred))


PAUSED_PLAN = ShardPlan((), (RestartDeferred(Reason.PAUSED, "spec.paused is true"),))
"""Of a shard whose pipeline is paused."""


def describe_shard(
    spec: ClickHouseShardIngestSpec,
    seen: ShardSeen,
    plan: ShardPlan,
    topics: tuple[TopicStatus, ...],
    tables: tuple[TableStatus, ...] = (),
) -> tuple[ClickHouseShardIngestStatus, tuple[Condition, ...]]:
    """The status without conditions and rollout, and the conditions of this moment without times."""
    expected = expected_streams(spec)
    status = ClickHouseShardIngestStatus(
        revision=seen.replicas[0].desired_spec_hash if seen.replicas else "",
        ready_replicas=sum(state is State.CONSUMING for state in seen.states().values()),
        updated_replicas=sum(r.pod is not None and not r.outdated for r in seen.replicas),
        streams=count_streams(expected, seen),
        replicas=_replicas(spec, seen),
        topics=topics,
        tables=tables,
    )
    return status, shard_conditions(spec, seen, plan.deferred, plan.steps, status)


def may_end(spec: ClickHouseShardIngestSpec, before: ClickHouseShardIngestStatus) -> bool:
    """Whether the pods of a shard that is to stop may end, by its last status: no replica that answers loads."""
    loading = {State.STARTING.value, State.REPLAYING.value, State.CONSUMING.value, State.STOPPED.value}
    return spec.stop and not any(replica.served and replica.state in loading for replica in before.replicas)


def count_streams(expected: tuple[str, ...], seen: ShardSeen) -> StreamCount:
    streams = seen.streams()
    owned = [streams[name] for name in expected if name in streams]
    return StreamCount(
        expected=len(expected),
        owned=len(owned),
        replaying=sum(stream.phase in ("REPLAY", "STARTING") for stream in owned),
        stopped=sum(stream.phase == "STOPPED" for stream in owned),
    )


def drained(expected: tuple[str, ...], seen: ShardSeen) -> bool:
    """Whether every message of every stream is stored: only then may a shard be removed."""
    streams = seen.streams()
    return all(name in streams and streams[name].drained for name in expected)


def _replicas(spec: ClickHouseShardIngestSpec, seen: ShardSeen) -> tuple[ReplicaStatus, ...]:
    by_name = {replica.name: replica for replica in (*seen.replicas, *seen.surplus)}
    states = seen.states()
    found = []
    for desired in spec.replicas:
        if desired.name in by_name:
            found.append(_replica(by_name[desired.name], states[desired.name], ""))
        else:
            state = states.get(desired.name)
            message = "" if state else f"nothing was heard of the operator of zone {desired.zone}"
            found.append(
                ReplicaStatus(
                    name=desired.name,
                    zone=desired.zone,
                    served=False,
                    state=state or State.UNREACHABLE,
                    message=message,
                )
            )
    found += [_replica(replica, State.DRAINING, "not in the spec any more: it is removed") for replica in seen.surplus]
    return tuple(found)


def _replica(replica: ReplicaSeen, state: State, message: str) -> ReplicaStatus:
    pod, aggregator = replica.pod, replica.aggregator
    stopped = [s for s in (aggregator.streams if aggregator else ()) if s.phase == "STOPPED"]
    if not message and stopped:
        message = f"stream {stopped[0].name} is stopped: {stopped[0].why}"
    quiet = replica.silence if state is State.UNREACHABLE else ""
    return ReplicaStatus(
        name=replica.name,
        zone=replica.zone,
        state=state.value,
        ready=bool(pod and pod.ready),
        streams=len(aggregator.streams) if aggregator else 0,
        restarts=pod.restarts if pod else 0,
        revision=pod.spec_hash if pod else "",
        message=(message or (pod.trouble if pod else "") or quiet)[:500],
    )
