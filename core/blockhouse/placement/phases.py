"""A plan in several executions: the same end, reached in smaller or gentler steps. Every step keeps the constraints.

Nothing here decides where a replica goes: it only orders what a plan has decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from blockhouse.placement.leadership import lead
from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, ReplicaSet
from blockhouse.placement.plan import Plan


def phases(plan: Plan) -> tuple[PartitionMap, PartitionMap]:
    """The plan in two executions: every new set with its old leader first, then the plan itself.

    So data is copied before the leader changes, and an old leader that is not in the new set leads until then.
    Leaders that are not in the cluster any more are not kept.
    """
    first = {
        key: lead(replicas, plan.before[key][0]) if plan.before[key][0] in plan.cluster else replicas
        for key, replicas in plan.after.items()
    }
    return PartitionMap(first), plan.after


def chunks(plan: Plan, brokers_per_chunk: int) -> tuple[PartitionMap, ...]:
    """The plan in steps, each taking replicas away from at most `brokers_per_chunk` brokers.

    Each step holds the sets it changes; executed in order they compose to the plan. Brokers that are gone are
    emptied first, the others by id; what takes no replica away (new leaders, more replicas) comes with the last
    step. Raises InvalidInput when `brokers_per_chunk` is below 1.
    """
    if brokers_per_chunk < 1:
        raise InvalidInput([f"chunk-step-size {brokers_per_chunk}: give at least 1"])
    done, steps = plan.before, []
    for state in _states(plan, brokers_per_chunk):
        steps.append(state.changed_from(done))
        done = state
    return tuple(step for step in steps if step)


def _states(plan: Plan, size: int) -> Iterator[PartitionMap]:
    """The map after each step. The last is the plan's."""
    givers = {id for key, old in plan.before.items() for id in old if id not in plan.after[key]}
    order = sorted(givers, key=lambda id: (id in plan.cluster, id))
    for end in range(size, len(order), size):
        waiting = frozenset(order[end:])
        yield PartitionMap(
            {key: _partly(old, plan.after[key], waiting, plan.cluster) for key, old in plan.before.items()}
        )
    yield plan.after


def _partly(old: ReplicaSet, new: ReplicaSet, waiting: frozenset[int], cluster: Mapping[int, Broker]) -> ReplicaSet:
    """The set while the brokers in `waiting` still hold their replicas. A set that no broker is waited for is final."""
    leaving = set(old) - set(new)
    if leaving <= waiting:
        return old
    if not leaving & waiting:
        return new
    successors = _successors(old, new, cluster)
    partly = (id if id not in leaving or id in waiting else successors.get(id) for id in old)
    return tuple(id for id in partly if id is not None)


def _successors(old: ReplicaSet, new: ReplicaSet, cluster: Mapping[int, Broker]) -> dict[int, int]:
    """Who takes the replica of each broker that gives it away: in its own rack if any arrives there, else in order.

    With the same rack first, a half-moved set never has two replicas in one rack when neither end has. A broker
    without a successor only gives (the replication goes down).
    """

    def rack(id: int) -> str:
        return cluster[id].rack if id in cluster else ""

    arriving = [id for id in new if id not in old]
    leaving = [id for id in old if id not in new]
    successors: dict[int, int] = {}
    for id in leaving:
        match = next((other for other in arriving if rack(id) and rack(other) == rack(id)), None)
        if match is not None:
            successors[id] = match
            arriving.remove(match)
    rest = [id for id in leaving if id not in successors]
    return successors | dict(zip(rest, arriving, strict=False))
