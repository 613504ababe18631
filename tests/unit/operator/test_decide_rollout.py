"""Which replica may be restarted, one check at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.decide.deferred import OVERDUE, RestartDeferred
from blockhouse_operator.decide.rollout import BeginStep, EndStep, Restart, RestartAggregator, plan_rollout
from blockhouse_operator.decide.seen import (
    BegunStep,
    ReplicaSeen,
    ShardSeen,
    State,
    StreamSeen,
    TableSeen,
    ZoneReport,
)
from blockhouse_operator.decide.streams import expected_streams
from tests.unit.operator.shard_world import consuming, replaying, shard, spec_of, unready

SPEC = spec_of(3)
A, B, C = (replica.name for replica in SPEC.replicas)


def old(name: str) -> ReplicaSeen:
    return consuming(name, "old")


def held(seen: ShardSeen, spec: ClickHouseShardIngestSpec = SPEC) -> Reason:
    step = plan_rollout(spec, seen)
    assert isinstance(step, RestartDeferred), step
    return step.reason


def paused(spec: ClickHouseShardIngestSpec = SPEC) -> ClickHouseShardIngestSpec:
    return spec.model_copy(update={"rollout": spec.rollout.model_copy(update={"paused": True})})


def test_nothing_is_restarted_while_every_pod_is_of_the_present_spec() -> None:
    assert plan_rollout(SPEC, shard(consuming(A), consuming(B), consuming(C))) is None


def test_a_step_is_noted_before_the_restart_and_ended_only_when_the_replica_is_well() -> None:
    outdated = shard(old(A), old(B), consuming(C))
    assert plan_rollout(SPEC, outdated) == BeginStep(A, "its pod was created from an older spec")

    noted = replace(outdated, begun=BegunStep(A, 0))
    assert isinstance(plan_rollout(SPEC, noted), Restart)

    starting = shard(unready(consuming(A)), old(B), consuming(C), begun=BegunStep(A, 9))
    assert held(starting) is Reason.ROLLING_OUT
    assert held(replace(starting, replicas=(replaying(consuming(A)), old(B), consuming(C)))) is Reason.ROLLING_OUT
    assert isinstance(plan_rollout(SPEC, shard(consuming(A), old(B), consuming(C), begun=BegunStep(A, 9))), EndStep)


@pytest.mark.parametrize("other", [unready(consuming(B)), replaying(consuming(B)), replace(consuming(B), pod=None)])
def test_no_replica_is_restarted_while_another_one_is_not_well(other: ReplicaSeen) -> None:
    assert held(shard(old(A), other, consuming(C))) is Reason.ROLLING_OUT
    assert held(shard(old(A), other, consuming(C), begun=BegunStep(A, 0))) is Reason.ROLLING_OUT


def test_a_replica_that_is_down_goes_first_for_its_restart_takes_nothing_away() -> None:
    step = plan_rollout(SPEC, shard(old(A), unready(old(B)), consuming(C)))
    assert isinstance(step, BeginStep)
    assert step.replica == B


def test_a_mistake_that_broke_all_replicas_is_fixed_by_the_next_spec() -> None:
    broken = shard(*(unready(old(name)) for name in (A, B, C)))
    assert isinstance(plan_rollout(SPEC, broken), BeginStep)
    assert isinstance(plan_rollout(SPEC, replace(broken, begun=BegunStep(A, 0))), Restart)
    loading_nothing = shard(*(replace(old(name), aggregator=None) for name in (A, B, C)))
    assert isinstance(plan_rollout(SPEC, loading_nothing), BeginStep)


def test_a_replica_that_cannot_replay_without_another_one_gives_its_turn_to_it() -> None:
    step = plan_rollout(SPEC, shard(replaying(consuming(A)), unready(old(B)), unready(old(C)), begun=BegunStep(A, 9)))
    assert isinstance(step, EndStep)
    begun = plan_rollout(SPEC, shard(replaying(consuming(A)), unready(old(B)), unready(old(C))))
    assert isinstance(begun, BeginStep)
    assert begun.replica == B


def test_a_restart_that_does_not_end_stalls_the_shard_and_touches_no_other_replica() -> None:
    step = plan_rollout(SPEC, shard(unready(consuming(A)), old(B), consuming(C), begun=BegunStep(A, 16 * 60)))
    assert isinstance(step, RestartDeferred)
    assert (step.reason, step.stalled) == (Reason.STEP_TIMED_OUT, True)


def test_a_corrected_spec_restarts_the_replica_that_is_down_already() -> None:
    step = plan_rollout(SPEC, shard(unready(old(A)), old(B), consuming(C), begun=BegunStep(A, 16 * 60)))
    assert isinstance(step, Restart)
    assert step.replica == A


def test_a_replica_taken_out_of_the_spec_meanwhile_releases_its_restart() -> None:
    assert isinstance(
        plan_rollout(SPEC, shard(old(A), consuming(B), consuming(C), begun=BegunStep("gone", 0))), EndStep
    )


def test_a_paused_rollout_begins_nothing_but_ends_what_was_begun() -> None:
    assert held(shard(old(A), consuming(B), consuming(C)), paused()) is Reason.PAUSED
    assert isinstance(plan_rollout(paused(), shard(consuming(A), old(B), consuming(C), begun=BegunStep(A, 0))), EndStep)


def test_other_shards_of_the_pipeline_wait_until_it_is_done() -> None:
    assert held(shard(old(A), consuming(B), consuming(C), busy_shards=1)) is Reason.ROLLING_OUT


def test_nothing_is_restarted_that_could_not_start_again() -> None:
    missing = shard(old(A), consuming(B), consuming(C), missing_references=("Secret x does not exist",))
    assert held(missing) is Reason.SECRET_MISSING
    assert held(replace(missing, begun=BegunStep(A, 0))) is Reason.SECRET_MISSING
    assert held(shard(old(A), consuming(B), consuming(C), zookeeper_trouble="down")) is Reason.ZOOKEEPER_UNREACHABLE


def two_zones() -> ClickHouseShardIngestSpec:
    elsewhere = SPEC.replicas[2].model_copy(update={"zone": "dc-b"})
    return SPEC.model_copy(update={"replicas": (*SPEC.replicas[:2], elsewhere)})


def test_a_zone_that_is_not_heard_of_is_not_taken_for_a_healthy_one() -> None:
    seen = shard(old(A), consuming(B), silent_zones=("dc-b",))
    assert held(seen, two_zones()) is Reason.STATUS_UNKNOWN


def test_what_another_zone_reports_of_its_replicas_counts() -> None:
    well = shard(old(A), consuming(B), elsewhere=(ZoneReport("dc-b", {C: State.CONSUMING}),))
    assert isinstance(plan_rollout(two_zones(), well), BeginStep)
    busy = replace(well, elsewhere=(ZoneReport("dc-b", {C: State.REPLAYING}),))
    assert held(busy, two_zones()) is Reason.ROLLING_OUT


def test_a_restart_claimed_by_another_zone_is_waited_for() -> None:
    seen = shard(old(A), consuming(B), elsewhere=(ZoneReport("dc-b", {C: State.CONSUMING}),), claimed_by=C)
    assert held(seen, two_zones()) is Reason.ROLLING_OUT
    assert isinstance(plan_rollout(two_zones(), replace(seen, claimed_by=A)), BeginStep)


def test_a_claim_whose_operator_died_before_noting_it_is_used_or_given_back() -> None:
    other = (ZoneReport("dc-b", {C: State.CONSUMING}),)
    used = plan_rollout(two_zones(), shard(old(A), old(B), elsewhere=other, claimed_by=B))
    assert isinstance(used, BeginStep)
    assert used.replica == B
    for claimed_by in (B, "gone"):
        given_back = plan_rollout(two_zones(), shard(old(A), consuming(B), elsewhere=other, claimed_by=claimed_by))
        assert isinstance(given_back, EndStep)
        assert given_back.replica == claimed_by


# --- aggregators that restart because tables were changed


STREAMS = tuple(StreamSeen(name, "CONSUME") for name in expected_streams(SPEC))


def due(name: str, *, seen: int = 0) -> ReplicaSeen:
    """A replica with a demand to restart, that it has seen if `seen` is 1; all streams of the shard are its own."""
    replica = consuming(name)
    assert replica.aggregator is not None
    known = replace(replica.aggregator, restart_demanded=1, restart_seen=seen, streams=STREAMS)
    return replace(replica, aggregator=known)


def loading(replica: ReplicaSeen, *tables: TableSeen) -> ReplicaSeen:
    assert replica.aggregator is not None
    return replace(replica, aggregator=replace(replica.aggregator, tables=tables))


def rolling(**changes: object) -> ClickHouseShardIngestSpec:
    return SPEC.model_copy(update={"rollout": SPEC.rollout.model_copy(update=changes)})


def test_after_a_change_of_tables_one_aggregator_after_the_other_restarts() -> None:
    first = shard(due(A), due(B), due(C))
    begun = plan_rollout(SPEC, first)
    assert isinstance(begun, BeginStep)
    assert (begun.replica, begun.aggregator_only) == (A, True)
    begun = BegunStep(A, 0, aggregator_only=True)
    restart = plan_rollout(SPEC, replace(first, begun=begun))
    assert isinstance(restart, RestartAggregator)
    assert (restart.replica, restart.demand) == (A, 1)
    silent = replace(due(A), aggregator=None)
    known = due(A).aggregator
    assert known is not None
    ending = replace(due(A), aggregator=replace(known, ready=False))
    for on_the_way in (ending, silent, replaying(due(A, seen=1))):
        assert held(shard(on_the_way, due(B), due(C), begun=begun)) is Reason.ROLLING_OUT
    idle = due(A, seen=1)
    assert idle.aggregator is not None
    idle = replace(idle, aggregator=replace(idle.aggregator, streams=()))
    assert held(shard(idle, due(B), due(C), begun=begun)) is Reason.ROLLING_OUT, "its streams are not back yet"
    done = shard(due(A, seen=1), due(B), due(C), begun=begun)
    assert isinstance(plan_rollout(SPEC, done), EndStep)
    following = plan_rollout(SPEC, replace(done, begun=None))
    assert isinstance(following, BeginStep)
    assert following.replica == B
    assert plan_rollout(SPEC, shard(*(due(name, seen=1) for name in (A, B, C)))) is None


def test_an_aggregator_that_does_not_know_the_newest_revision_is_not_well_yet() -> None:
    begun = BegunStep(A, 9, aggregator_only=True)
    newest, older = TableSeen("db.t", schema_revision=2), TableSeen("db.t", schema_revision=1)
    seen = shard(loading(due(A, seen=1), older), loading(due(B), newest), due(C), begun=begun)
    step = plan_rollout(SPEC, seen)
    assert isinstance(step, RestartDeferred)
    assert "without revision 2 of db.t" in step.why


def test_a_pod_that_is_outdated_is_replaced_rather_than_its_aggregator_restarted() -> None:
    step = plan_rollout(SPEC, shard(due(A), old(B), consuming(C)))
    assert isinstance(step, BeginStep)
    assert (step.replica, step.aggregator_only) == (B, False)


def test_no_aggregator_restarts_where_they_reload_or_while_it_is_paused_or_aborted() -> None:
    seen = shard(due(A), due(B), due(C))
    assert plan_rollout(rolling(strategy="Reload"), seen) is None
    assert held(seen, rolling(paused=True)) is Reason.PAUSED
    assert held(seen, rolling(abort=True)) is Reason.ABORTED


@pytest.mark.parametrize("other", [unready(consuming(B)), replaying(consuming(B))])
def test_no_aggregator_restarts_while_another_replica_is_not_well(other: ReplicaSeen) -> None:
    assert held(shard(due(A), other, consuming(C))) is Reason.ROLLING_OUT
    assert held(shard(due(A), other, consuming(C), begun=BegunStep(A, 0, aggregator_only=True))) is Reason.ROLLING_OUT


def test_no_aggregator_restarts_while_streams_are_on_their_way() -> None:
    """With A gone, they would have no one to go to."""
    moving = (StreamSeen(STREAMS[0].name, "STARTING"), *STREAMS[1:])
    for streams in (moving, STREAMS[1:]):
        replicas = [replace(due(name), aggregator=replace(due(name).aggregator, streams=streams)) for name in (A, B, C)]  # type: ignore[type-var]
        assert held(shard(*replicas)) is Reason.ROLLING_OUT


def test_no_aggregator_restarts_before_what_was_taken_over_is_loaded() -> None:
    """It would get the next one's streams too, while it still starts the tasks of these."""
    cold = (replace(STREAMS[0], cold=True), *STREAMS[1:])
    replicas = [replace(due(name), aggregator=replace(due(name).aggregator, streams=cold)) for name in (A, B, C)]  # type: ignore[type-var]
    for begun in (None, BegunStep(A, 0, aggregator_only=True)):
        step = plan_rollout(SPEC, shard(*replicas, begun=begun))
        assert isinstance(step, RestartDeferred)
        assert step.why == f"{A} is to restart; stream {STREAMS[0].name} is taken over, and nothing of it is stored yet"


def test_nothing_restarts_while_a_table_is_paused_unless_it_is_down() -> None:
    holding = loading(due(C), TableSeen("db.t", rollout="operator/schema"))
    assert held(shard(due(A), due(B), holding)) is Reason.SCHEMA_CHANGING
    assert held(shard(old(A), consuming(B), holding)) is Reason.SCHEMA_CHANGING
    assert isinstance(plan_rollout(SPEC, shard(unready(old(A)), consuming(B), holding)), BeginStep)


@pytest.mark.parametrize("begun", [BegunStep(A, 9), None], ids=["its own step", "the step of another one"])
def test_a_pod_that_ends_is_awaited_and_one_that_does_not_end_is_reported(begun: BegunStep | None) -> None:
    ending = unready(old(A))
    assert ending.pod is not None
    ending = replace(ending, pod=replace(ending.pod, terminating=True, node="node-7"))
    waits = shard(ending, old(B), consuming(C), begun=begun)
    assert held(waits) is Reason.ROLLING_OUT

    stuck = plan_rollout(SPEC, replace(waits, overdue={A: OVERDUE + 1}))

    assert isinstance(stuck, RestartDeferred)
    assert (stuck.reason, stuck.stalled) == (Reason.POD_NOT_ENDING, True)
    assert "delete node node-7" in stuck.why


def test_a_pod_that_takes_its_time_to_end_is_reported_when_the_step_takes_too_long() -> None:
    ending = unready(old(A))
    assert ending.pod is not None
    ending = replace(ending, pod=replace(ending.pod, terminating=True))

    assert held(shard(ending, old(B), consuming(C), begun=BegunStep(A, 9999))) is Reason.STEP_TIMED_OUT
