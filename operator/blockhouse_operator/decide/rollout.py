"""Which replica may be restarted now: a chain of small checks, each of which can hold a restart back with a reason.

A restart replaces a pod that was created from an older spec, or only ends an aggregator that tables were changed under.

Never two replicas of a shard at once, and never one while another one of the shard is not well. A step that was begun
is the only one until the replica it is about is well again. If the spec is corrected meanwhile, the same replica is
restarted again, for it is the one that is down already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from blockhouse.config.units import seconds
from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.decide.deferred import RestartDeferred, not_ending
from blockhouse_operator.decide.seen import ReplicaSeen, ShardSeen, State, StreamSeen
from blockhouse_operator.decide.streams import expected_streams
from blockhouse_operator.decide.words import counted

WELL = frozenset({State.CONSUMING, State.STOPPED, State.SUSPENDED})
"""Pod ready and nothing inherited left to replay. A stopped stream waits for a person, who may need this rollout."""

DOWN = frozenset({State.MISSING, State.PENDING, State.DRAINING})
"""Its ClickHouse does not answer."""


@dataclass(frozen=True, slots=True)
class BeginStep:
    """Note in the status (and in ZooKeeper, where several operators share the shard) that this replica is next."""

    replica: str
    why: str
    aggregator_only: bool = False


@dataclass(frozen=True, slots=True)
class Restart:
    """Evict the replica's pod; its StatefulSet makes a new one."""

    replica: str
    why: str


@dataclass(frozen=True, slots=True)
class RestartAggregator:
    """Request the aggregator to end in order, unless it was started after this demand; the kubelet starts it again."""

    replica: str
    why: str
    demand: int


@dataclass(frozen=True, slots=True)
class EndStep:
    """The replica is well again, or not desired any more: the next step may begin."""

    replica: str
    why: str


RolloutStep = BeginStep | Restart | RestartAggregator | EndStep | RestartDeferred

RESTART = (BeginStep, RestartAggregator, EndStep)
"""The steps, for one replica after the other, that follow a change of tables (`decide.tables.CHANGE`)."""
OUTDATED = "its pod was created from an older spec"
DEMANDED = "its restart was asked for"
CHANGED = "a table's columns were added since its aggregator started"


@dataclass(frozen=True, slots=True)
class Look:
    """What a check reads."""

    spec: ClickHouseShardIngestSpec
    seen: ShardSeen
    candidate: ReplicaSeen

    def others(self) -> Iterator[tuple[str, State]]:
        """The other replicas of the shard that are known of, and what they do."""
        states = self.seen.states()
        for replica in self.spec.replicas:
            if replica.name != self.candidate.name and replica.zone not in self.seen.silent_zones:
                yield replica.name, states.get(replica.name, State.MISSING)


Check = Callable[[Look], RestartDeferred | None]


def plan_rollout(spec: ClickHouseShardIngestSpec, seen: ShardSeen) -> RolloutStep | None:
    """The one step to take now; None when every pod is as it should be."""
    if seen.begun is not None:
        return _continue(spec, seen)
    if (left_behind := _left_behind(spec, seen)) is not None:
        return left_behind
    candidate = next(_candidates(seen), None)
    if candidate is not None:
        return _deferred(BEFORE_A_STEP, Look(spec, seen, candidate)) or BeginStep(candidate.name, _why(candidate))
    due = next(_due(seen), None)
    if due is not None and spec.rollout.strategy == "RollingRestart":
        look = Look(spec, seen, due)
        return _deferred((not_aborted, *BEFORE_A_STEP, streams_consumed), look) or BeginStep(
            due.name, CHANGED, aggregator_only=True
        )
    return None


def _why(replica: ReplicaSeen) -> str:
    return DEMANDED if replica.pod is not None and replica.pod.restart_demanded else OUTDATED


def _left_behind(spec: ClickHouseShardIngestSpec, seen: ShardSeen) -> EndStep | None:
    """A claim that no operator continues: its operator died between claiming and noting, and needs it no longer."""
    desired = {replica.name for replica in spec.replicas}
    ours = {replica.name: replica for replica in seen.replicas}
    if not seen.claimed_by:
        return None
    if seen.claimed_by not in desired:
        return EndStep(seen.claimed_by, "it is not desired any more")
    if seen.claimed_by in ours and not (ours[seen.claimed_by].outdated or ours[seen.claimed_by].restart_due):
        return EndStep(seen.claimed_by, "its claim was left behind")
    return None


def _candidates(seen: ShardSeen) -> Iterator[ReplicaSeen]:
    """Outdated replicas, those that are down or not well first: restarting them costs least and may be their cure.

    Before all others the one that has the claim on the shard's restarts already.
    """

    outdated = [replica for replica in seen.replicas if replica.outdated]
    yield from sorted(outdated, key=lambda replica: (replica.name != seen.claimed_by, _worth(replica)))


def _due(seen: ShardSeen) -> Iterator[ReplicaSeen]:
    """Replicas whose aggregator is to restart: the one that has the claim first, then those that are not well."""
    due = [replica for replica in seen.replicas if replica.restart_due]
    yield from sorted(due, key=lambda replica: (replica.name != seen.claimed_by, _worth(replica)))


def _worth(replica: ReplicaSeen) -> tuple[bool, bool]:
    """What a restart takes away: sorts a replica that is down before one that is not well, and that before the rest."""
    state = replica.state()
    return state not in DOWN, state in WELL


def _continue(spec: ClickHouseShardIngestSpec, seen: ShardSeen) -> RolloutStep:
    assert seen.begun is not None
    replica = next((r for r in seen.replicas if r.name == seen.begun.replica), None)
    if replica is None:
        return EndStep(seen.begun.replica, "it is not desired any more")
    if replica.outdated:
        deferred = _deferred(BEFORE_A_RESTART, Look(spec, seen, replica))
        if deferred is not None and any(r.outdated and _worth(r) < _worth(replica) for r in seen.replicas):
            return EndStep(replica.name, f"it was not restarted: {deferred.why}, outdated as well and goes first")
        return deferred or Restart(replica.name, _why(replica))
    if replica.restart_due and spec.rollout.strategy == "RollingRestart":
        if replica.aggregator is not None and not replica.aggregator.ready:
            return RestartDeferred(
                Reason.ROLLING_OUT, f"the aggregator of replica {replica.name} ends, to be started again"
            )
        deferred = _deferred((*BEFORE_A_RESTART, streams_consumed), Look(spec, seen, replica))
        return deferred or RestartAggregator(replica.name, CHANGED, replica.restart_due)
    if (stuck := not_ending(seen, replica.name, f"replica {replica.name} is restarting")) is not None:
        return stuck
    state, behind = replica.state(), _behind(seen, replica)
    if not behind and seen.begun.aggregator_only and state is State.CONSUMING:
        behind = _without_share(spec, replica)
    if state in WELL and not behind:
        return EndStep(replica.name, f"it runs the present spec and is {state}")
    if replica.pod is not None and replica.pod.ready and _others_down(seen, replica):
        return EndStep(replica.name, f"it is {state} and may need another one that is outdated and down")
    if seen.begun.since_seconds > seconds(spec.rollout.step_timeout):
        return RestartDeferred(
            Reason.STEP_TIMED_OUT,
            f"replica {replica.name} is {state}{behind} for longer than {spec.rollout.step_timeout} after its restart"
            f"{_trouble(replica)}; nothing else of the shard is restarted",
            stalled=True,
        )
    return RestartDeferred(
        Reason.ROLLING_OUT, f"replica {replica.name} was restarted and is {state}{behind}{_trouble(replica)}"
    )


def _without_share(spec: ClickHouseShardIngestSpec, replica: ReplicaSeen) -> str:
    """It is back, and its own streams are not yet: the next one would release its streams with no one to take them."""
    share = spec.kafka.topic.partitions >= len(spec.replicas)
    owns = replica.aggregator is not None and bool(replica.aggregator.streams)
    return " without a stream" if share and not owns else ""


def _behind(seen: ShardSeen, replica: ReplicaSeen) -> str:
    """A table of which others load a revision that this replica does not know yet."""
    known = {table.name: table.schema_revision for table in replica.aggregator.tables} if replica.aggregator else {}
    for other in seen.replicas:
        for table in other.aggregator.tables if other.aggregator else ():
            if known.get(table.name, 0) < table.schema_revision:
                return f" without revision {table.schema_revision} of {table.name}"
    return ""


def _deferred(checks: tuple[Check, ...], look: Look) -> RestartDeferred | None:
    return next((step for check in checks if (step := check(look)) is not None), None)


def _others_down(seen: ShardSeen, replica: ReplicaSeen) -> bool:
    return any(r.outdated and r.pod is not None and not r.pod.ready for r in seen.replicas if r is not replica)


def _trouble(replica: ReplicaSeen) -> str:
    why = (replica.pod.trouble if replica.pod else "") or replica.silence
    return f" ({why})" if why else ""


def not_paused(look: Look) -> RestartDeferred | None:
    if look.spec.rollout.paused:
        return RestartDeferred(Reason.PAUSED, f"{look.candidate.name} is to restart; spec.rollout.paused is true")
    return None


def in_window(look: Look) -> RestartDeferred | None:
    """Unless a person asked for this restart, or it takes nothing away."""
    pod = look.candidate.pod
    if not look.seen.outside_window or look.candidate.state() in DOWN or (pod is not None and pod.restart_demanded):
        return None
    return RestartDeferred(Reason.OUTSIDE_WINDOW, f"{look.candidate.name} is to restart; {look.seen.outside_window}")


def not_aborted(look: Look) -> RestartDeferred | None:
    if look.spec.rollout.abort:
        return RestartDeferred(Reason.ABORTED, f"{look.candidate.name} is to restart; spec.rollout.abort is true")
    return None


def no_table_paused(look: Look) -> RestartDeferred | None:
    """A paused table waits for every replica. One that is down is none of those: its restart may be its cure."""
    if look.candidate.state() in DOWN:
        return None
    for replica in look.seen.replicas:
        if replica.paused_table:
            return RestartDeferred(
                Reason.SCHEMA_CHANGING, f"{look.candidate.name} is to restart; {replica.paused_table} is paused"
            )
    return None


def streams_consumed(look: Look) -> RestartDeferred | None:
    """An aggregator that ends gives its streams away: those that are on their way already must have arrived before.

    Arrived is one of which the new owner has stored something. Before that its tasks start and its clients connect, and
    what the next restart gives away would wait behind them.
    """
    found = look.seen.streams()
    for name in expected_streams(look.spec):
        stream = found.get(name, _UNOWNED)
        if stream.phase in _ON_THE_WAY or stream.cold:
            phase = "taken over, and nothing of it is stored yet" if stream.cold else stream.phase
            return RestartDeferred(Reason.ROLLING_OUT, f"{look.candidate.name} is to restart; stream {name} is {phase}")
    return None


_UNOWNED = StreamSeen("", "unowned")
_ON_THE_WAY = ("STARTING", "REPLAY", _UNOWNED.phase)


def references_present(look: Look) -> RestartDeferred | None:
    if look.seen.missing_references:
        return RestartDeferred(
            Reason.SECRET_MISSING, f"a restarted pod could not start without {look.seen.missing_references[0]}"
        )
    return None


def zookeeper_answers(look: Look) -> RestartDeferred | None:
    """Without it no one knows what other zones do, and a restarted ClickHouse would be read-only."""
    if look.seen.zookeeper_trouble:
        return RestartDeferred(Reason.ZOOKEEPER_UNREACHABLE, look.seen.zookeeper_trouble)
    return None


def others_well(look: Look) -> RestartDeferred | None:
    """Unless the candidate is down, so that its restart takes nothing away; or it loads nothing, and nor does a quorum.

    Without these exceptions a mistake that broke several replicas could not be fixed by a corrected spec. A candidate
    whose ClickHouse answers is never restarted while another one's does not.
    """
    others = dict(look.others())
    state = look.candidate.state()
    if state in DOWN:
        return None
    if state not in WELL and not _quorum(look, others) and not any(other in DOWN for other in others.values()):
        return None
    for name, state in others.items():
        if state not in WELL:
            why = f"{look.candidate.name} is to restart; waiting for {name}, which is {state}"
            return not_ending(look.seen, name, why) or RestartDeferred(Reason.ROLLING_OUT, why)
    return None


def _quorum(look: Look, others: Mapping[str, State]) -> bool:
    return sum(state in WELL for state in others.values()) >= look.spec.quorum


def other_zones_heard(look: Look) -> RestartDeferred | None:
    for zone in look.seen.silent_zones:
        return RestartDeferred(
            Reason.STATUS_UNKNOWN,
            f"{look.candidate.name} is to restart; nothing was heard of the operator of zone {zone}, "
            "so nothing is restarted here",
        )
    return None


def nothing_removed(look: Look) -> RestartDeferred | None:
    """Unless the removal itself waits for replicas that this rollout may bring back."""
    if not _quorum(look, look.seen.states()):
        return None
    for replica in look.seen.surplus:
        return RestartDeferred(
            Reason.SCALING, f"{look.candidate.name} is to restart; {replica.name} is being removed first"
        )
    return None


def nothing_rebuilt(look: Look) -> RestartDeferred | None:
    """A replica that is cloned from the others needs them."""
    begun = look.seen.rebuild.begun if look.seen.rebuild is not None else None
    if begun is not None and begun.replica != look.candidate.name:
        return RestartDeferred(
            Reason.REBUILDING, f"{look.candidate.name} is to restart; {begun.replica} is being rebuilt first"
        )
    return None


def shard_not_claimed(look: Look) -> RestartDeferred | None:
    if look.seen.claimed_by and look.seen.claimed_by != look.candidate.name:
        return RestartDeferred(
            Reason.ROLLING_OUT, f"{look.candidate.name} is to restart; {look.seen.claimed_by} is being restarted"
        )
    return None


def parallel_shards_left(look: Look) -> RestartDeferred | None:
    if look.seen.busy_shards >= look.spec.rollout.max_parallel_shards:
        others = counted(look.seen.busy_shards, "other shard is", "other shards are")
        return RestartDeferred(
            Reason.ROLLING_OUT,
            f"{look.candidate.name} is to restart; {others} being restarted, "
            f"spec.rollout.maxParallelShards allows {look.spec.rollout.max_parallel_shards}",
        )
    return None


BEFORE_A_RESTART: tuple[Check, ...] = (references_present, zookeeper_answers, other_zones_heard, others_well)
BEFORE_A_STEP: tuple[Check, ...] = (
    not_paused,
    in_window,
    nothing_removed,
    nothing_rebuilt,
    *BEFORE_A_RESTART,
    no_table_paused,
    shard_not_claimed,
    parallel_shards_left,
)
