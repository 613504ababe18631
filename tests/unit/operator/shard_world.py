"""A shard as a small world: pods that end, start, fail and catch up, under an operator that plans from what it sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random

from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.decide.removal import DeleteReplica, Drain, Unregister
from blockhouse_operator.decide.replication import ReplicaOfTable, ReplicationSeen
from blockhouse_operator.decide.rollout import DOWN, WELL, BeginStep, EndStep, Restart
from blockhouse_operator.decide.seen import AggregatorSeen, BegunStep, PodSeen, ReplicaSeen, ShardSeen, StreamSeen
from blockhouse_operator.decide.shard import ShardPlan, plan_shard
from tests.unit.operator.resources import pipeline

NOW = "new"


@cache
def spec_of(replicas: int = 3) -> ClickHouseShardIngestSpec:
    """One shard with `replicas` replicas in one zone and a quorum of two."""
    made = pipeline(
        ("spec.zones", [{"name": "dc-a", "replicas": replicas}]),
        ("spec.quorum", min(2, replicas)),
    )
    return resolve(made, 0)


def consuming(name: str, revision: str = NOW) -> ReplicaSeen:
    """A replica that is well."""
    return ReplicaSeen(
        name,
        "dc-a",
        desired_spec_hash=NOW,
        scale=1,
        pod=PodSeen(ready=True, spec_hash=revision),
        aggregator=AggregatorSeen(ready=True, streams=(StreamSeen(f"a/events-0/{name[-1]}", "CONSUME"),)),
    )


def replaying(replica: ReplicaSeen) -> ReplicaSeen:
    return replace(replica, aggregator=AggregatorSeen(True, (StreamSeen("a/events-0/0", "REPLAY"),)))


def unready(replica: ReplicaSeen) -> ReplicaSeen:
    assert replica.pod is not None
    return replace(replica, pod=replace(replica.pod, ready=False), aggregator=None)


def shard(*replicas: ReplicaSeen, **more: object) -> ShardSeen:
    return ShardSeen(replicas=replicas, **more)  # type: ignore[arg-type]


@dataclass
class World:
    """Replicas by name; those that the spec does not want are surplus. `deleted` are gone for good."""

    spec: ClickHouseShardIngestSpec
    replicas: dict[str, ReplicaSeen]
    begun: BegunStep | None = None
    unregistered: tuple[str, ...] = ()
    copied: frozenset[str] = frozenset()
    """Surplus replicas of which the others have all data; `advance` copies that of the others."""
    steps: int = 0

    @classmethod
    def any(cls, chance: Random) -> World:
        """Any state that a shard can be found in, sensible or not."""
        spec = spec_of(chance.choice([2, 3, 4]))
        desired = [replica.name for replica in spec.replicas]
        names = [*desired, *(f"old-{n}" for n in range(chance.choice([0, 0, 1, 2])))]
        replicas = {name: _any_replica(name, chance) for name in names}
        begun = (
            BegunStep(chance.choice([*desired, "gone"]), chance.choice([0.0, 1e6])) if chance.random() < 0.4 else None
        )
        return cls(spec, replicas, begun)

    def seen(self) -> ShardSeen:
        desired = [replica.name for replica in self.spec.replicas]
        surplus = tuple(r for name, r in sorted(self.replicas.items()) if name not in desired)
        return ShardSeen(
            replication=self.replication(surplus),
            replicas=tuple(self.replicas.get(name, ReplicaSeen(name, "dc-a", NOW)) for name in desired),
            surplus=surplus,
            begun=self.begun,
        )

    def replication(self, surplus: tuple[ReplicaSeen, ...]) -> ReplicationSeen | None:
        """One table, at a moment at which only the copied replicas' part is on the others, too."""
        if not surplus:
            return None
        copied = frozenset(_part_of(name) for name in self.copied)
        own = {r.name: _part_of(r.name) for r in surplus if r.name not in self.unregistered}
        table = {replica.name: ReplicaOfTable(active=True, parts=copied) for replica in self.spec.replicas}
        table |= {name: ReplicaOfTable(active=True, parts=frozenset({part})) for name, part in own.items()}
        return ReplicationSeen({"/t": table})

    def operate(self) -> ShardPlan:
        """One reconcile of the operator, with the check that every step keeps the shard alive."""
        seen = self.seen()
        plan = plan_shard(self.spec, seen)
        for step in plan.steps:
            self.steps += 1
            self._check(seen, step)
            self._take(step)
        return plan

    def _check(self, seen: ShardSeen, step: object) -> None:
        states = seen.states()
        if isinstance(step, Restart):
            mine = states[step.replica]
            others = [state for name, state in states.items() if name != step.replica]
            no_quorum = sum(state in WELL for state in others) < self.spec.quorum
            all_answer = not any(state in DOWN for state in others)
            takes_nothing = mine in DOWN or (mine not in WELL and no_quorum and all_answer)
            assert all(state in WELL for state in others) or takes_nothing, f"{step} while the others are {others}"
            assert self.begun is not None
            assert self.begun.replica == step.replica, "a restart that was not noted before"
        if isinstance(step, Drain):
            assert sum(state in WELL for state in states.values()) >= self.spec.quorum, step
            assert self.begun is None, "a replica drained while another one restarts"
        if isinstance(step, (Drain, Unregister)):
            assert step.replica in self.copied, f"{step} before the others have its data"
        if isinstance(step, (Unregister, DeleteReplica)):
            gone = self.replicas[step.replica]
            assert gone.pod is None
            assert gone.scale == 0 or gone.scale is None
        if isinstance(step, DeleteReplica):
            assert step.replica in self.unregistered, "deleted before ZooKeeper forgot it"

    def _take(self, step: object) -> None:
        match step:
            case BeginStep():
                self.begun = BegunStep(step.replica, 0.0)
            case EndStep():
                self.begun = None
            case Restart():
                found = self.replicas[step.replica]
                assert found.pod is not None
                self.replicas[step.replica] = replace(
                    found, pod=replace(found.pod, terminating=True, ready=False), aggregator=None
                )
            case Drain():
                found = self.replicas[step.replica]
                pod = replace(found.pod, terminating=True, ready=False) if found.pod else None
                self.replicas[step.replica] = replace(found, scale=0, pod=pod, aggregator=None)
            case Unregister():
                self.unregistered += (step.replica,)
            case DeleteReplica():
                del self.replicas[step.replica]

    def advance(self, name: str) -> bool:
        """What Kubernetes and the aggregators do with a replica by themselves, one stage further."""
        found = self.replicas.get(name)
        desired = any(replica.name == name for replica in self.spec.replicas)
        if not desired and found is not None and name not in self.copied:
            self.copied |= {name}
            return True
        if found is None or found.scale is None or (desired and found.scale == 0):
            if desired:  # its StatefulSet is applied at every reconcile
                self.replicas[name] = replace(found or ReplicaSeen(name, "dc-a", NOW), scale=1)
            return desired
        after = _next_stage(found)
        self.replicas[name] = after
        return after != found

    def harm(self, name: str, chance: Random) -> None:
        """A pod loses its readiness, its aggregator falls silent or replays, or the spec changes."""
        found = self.replicas.get(name)
        if found is None or found.pod is None or found.pod.terminating:
            return
        match chance.choice(["unready", "silent", "replay", "outdated"]):
            case "unready":
                self.replicas[name] = unready(found)
            case "silent":
                self.replicas[name] = replace(found, aggregator=None)
            case "replay":
                self.replicas[name] = replaying(found) if found.pod.ready else found
            case "outdated":
                self.replicas[name] = replace(found, pod=replace(found.pod, spec_hash="old"))

    def settle(self) -> int:
        """Let the operator and Kubernetes work until nothing changes any more; returns how many reconciles it took."""
        for count in range(200):
            plan = self.operate()
            names = {replica.name for replica in self.spec.replicas} | self.replicas.keys()
            moved = [self.advance(name) for name in sorted(names)]
            if not plan.steps and not any(moved):
                return count
        raise AssertionError(f"no fixed point: {self.begun} {self.replicas}")


def _part_of(name: str) -> str:
    """The part that only this surplus replica wrote: block `n` of the table for `old-n`."""
    number = name.removeprefix("old-")
    return f"all_{number}_{number}_0"


def _next_stage(found: ReplicaSeen) -> ReplicaSeen:
    """ending -> gone -> made -> ready -> answering (replaying) -> consuming."""
    if found.pod is None:
        return replace(found, pod=PodSeen(ready=False, spec_hash=found.desired_spec_hash)) if found.scale else found
    if found.pod.terminating:
        return replace(found, pod=None, aggregator=None)
    if not found.pod.ready:
        # What is broken in an old revision stays broken: only a restart helps.
        return found if found.outdated else replace(found, pod=replace(found.pod, ready=True))
    if found.aggregator is None:
        return replaying(found)
    return replace(found, aggregator=AggregatorSeen(True, (StreamSeen(f"a/events-0/{found.name}", "CONSUME"),)))


def _any_replica(name: str, chance: Random) -> ReplicaSeen:
    base = consuming(name, chance.choice([NOW, "old"]))
    kind = chance.choice(["well", "well", "unready", "replaying", "silent", "ending", "gone", "zero", "missing"])
    match kind:
        case "unready":
            return unready(base)
        case "replaying":
            return replaying(base)
        case "silent":
            return replace(base, aggregator=None, silence="no answer")
        case "ending":
            assert base.pod is not None
            return replace(base, pod=replace(base.pod, terminating=True, ready=False), aggregator=None)
        case "gone":
            return replace(base, pod=None, aggregator=None)
        case "zero":
            return replace(base, scale=0, pod=None, aggregator=None)
        case "missing":
            return replace(base, scale=None, pod=None, aggregator=None)
    return base
