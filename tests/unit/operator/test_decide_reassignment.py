"""What a KafkaReassignment may do next, what its status has, and which of several goes first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from blockhouse.fleet.frozen import FrozenPlan, PlannedMove, Seen, Verdict, freeze
from blockhouse.fleet.model import Move, PartitionState, Storage
from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, TopicPartition
from blockhouse.throttle.model import Role
from blockhouse.throttle.report import Row
from blockhouse_operator.api.conditions import ConditionType, find
from blockhouse_operator.api.reassignment import KafkaReassignmentSpec, PlanStatus
from blockhouse_operator.api.resource import InvalidSpec, parse_reassignment
from blockhouse_operator.decide.reassignment import (
    Phase,
    Standing,
    conditions_of,
    may_start,
    overdue,
    phase_of,
    progress_of,
)
from blockhouse_operator.decide.reassignment_plan import PlanInputs, make_plan, plan_status, question, shown_plan
from blockhouse_operator.decide.reassignment_queue import (
    Candidate,
    Queue,
    absent_from,
    goes_first,
    left_on,
    strangers_to,
)
from blockhouse_operator.decide.reassignment_throttle import overrides_of, settings_of

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
KEYS = [TopicPartition("t", number) for number in range(4)]
CLUSTER = {"name": "a", "bootstrapServers": "kafka:9092"}


def spec(**changes: Any) -> KafkaReassignmentSpec:
    content = {"cluster": CLUSTER, "operation": "ReplaceBrokers", "leaving": [3], **changes}
    return KafkaReassignmentSpec.model_validate(content)


def plan() -> FrozenPlan:
    return FrozenPlan("id", {"t": "1"}, tuple(PlannedMove(key, (3, 1), (2, 1), 1000.0) for key in KEYS))


def standing(*verdicts: Verdict, approved: bool = True, **more: Any) -> Standing:
    found = dict(zip(KEYS, (*verdicts, *[Verdict.DONE] * 4), strict=False))
    return Standing(found, approved=approved, **more)


WAITING, MOVING, DEAD, FOREIGN, GONE = Verdict.WAITING, Verdict.MOVING, Verdict.DEAD, Verdict.FOREIGN, Verdict.GONE


@pytest.mark.parametrize(
    ("changes", "now", "phase", "starts"),
    [
        ({}, standing(WAITING, approved=False), Phase.AWAITING_APPROVAL, False),
        ({}, standing(WAITING), Phase.EXECUTING, True),
        ({}, standing(MOVING, approved=False), Phase.EXECUTING, False),
        ({"paused": True}, standing(WAITING, MOVING), Phase.PAUSED, False),
        ({}, standing(WAITING, ahead="x/other"), Phase.QUEUED, False),
        ({}, standing(WAITING, overdue=True), Phase.STALLED, False),
        ({}, standing(WAITING, MOVING, superseded=True), Phase.EXECUTING, False),
        ({}, standing(DEAD, WAITING), Phase.EXECUTING, True),
        ({}, standing(DEAD), Phase.STALLED, True),
        ({}, standing(FOREIGN), Phase.STALLED, True),
        ({}, standing(WAITING, Verdict.NEITHER), Phase.EXECUTING, False),
        ({}, standing(GONE), Phase.COMPLETED, True),
        ({}, standing(cleaning=True), Phase.EXECUTING, True),
        ({}, standing(left_on=(3,)), Phase.EXECUTING, True),
    ],
)
def test_what_may_be_done(changes: dict[str, Any], now: Standing, phase: Phase, starts: bool) -> None:
    asked = spec(**changes)
    assert phase_of(asked, now) is phase
    assert may_start(asked, now) is starts


def test_a_plan_is_invalid_only_when_a_partition_is_at_neither_end_and_nothing_moves() -> None:
    assert standing(Verdict.NEITHER).invalid
    assert not standing(Verdict.NEITHER, MOVING).invalid
    assert not standing(GONE, DEAD, FOREIGN, WAITING).invalid


def condition_of(
    now: Standing, kind: ConditionType, rows: tuple[Row, ...] = (), **changes: Any
) -> tuple[str, str, str]:
    found = find(conditions_of(spec(**changes), plan(), now, rows), kind)
    return (found.status, found.reason, found.message) if found else ("", "", "")


def test_an_approval_of_another_plan_is_refused_with_both_hashes() -> None:
    status, reason, message = condition_of(
        standing(WAITING, approved=False), ConditionType.APPROVED, approvedPlan="0123456789abcdef"
    )
    assert (status, reason) == ("False", "OtherPlanApproved")
    assert "0123456789abcdef" in message
    assert plan().hash in message


def test_stalled_is_only_there_while_a_person_has_to_act() -> None:
    assert condition_of(standing(DEAD, WAITING), ConditionType.STALLED)[0] == ""
    assert condition_of(standing(DEAD), ConditionType.STALLED)[:2] == ("True", "BrokerNotAlive")
    assert condition_of(standing(FOREIGN), ConditionType.STALLED)[:2] == ("True", "ForeignReassignment")
    assert condition_of(standing(GONE), ConditionType.STALLED)[0] == ""
    refused = conditions_of(spec(), plan(), standing(WAITING), (), "t partition 0: no rights")
    found = find(refused, ConditionType.STALLED)
    assert found is not None
    assert (found.reason, found.message) == ("ReassignmentRefused", "t partition 0: no rights")


def row(**changes: Any) -> Row:
    base = Row(2, Role.FOLLOWER, True, 100e6, 85e6, 1e6, 10_000_000, 10_000_000, 72e6, "x", 500.0, 60.0, True, 15e6)
    return replace(base, **changes)


def test_a_stalled_throttle_names_what_is_needed_and_what_is_possible() -> None:
    status, reason, message = condition_of(standing(MOVING), ConditionType.THROTTLE_STALLED, (row(),))
    assert (status, reason) == ("True", "ThrottleTooLow")
    assert "72 MB/s needed, at most 15 MB/s possible" in message
    assert condition_of(standing(MOVING), ConditionType.THROTTLE_STALLED, (row(stalled=False),))[0] == "False"


def test_a_destination_that_is_not_alive_is_named_while_its_partitions_move() -> None:
    moves = {
        KEYS[0]: Move((2, 3, 1), frozenset({2}), frozenset({3})),
        KEYS[1]: Move((9, 3), frozenset({9}), frozenset()),
    }
    seen = Seen({}, moves, {1, 3}, {})
    assert absent_from(plan(), seen) == (2,), "and not the one to which something else moves a partition"
    assert absent_from(plan(), replace(seen, live={1, 2, 3})) == ()
    status, reason, message = condition_of(standing(MOVING, absent=(2,)), ConditionType.EXECUTING)
    assert (status, reason) == ("True", "BrokerNotAlive")
    assert "1 partitions move; broker 2 is not alive" in message


def test_a_broker_that_was_never_there_does_not_look_replaced() -> None:
    seen = inputs().seen
    assert strangers_to(spec(leaving=[3, 99]), seen) == (99,)
    dead = replace(seen, live=set(seen.live) - {3})
    assert strangers_to(spec(leaving=[3]), dead) == (), "dead, but it holds replicas"
    for moves in (plan(), replace(plan(), moves=())):
        found = find(conditions_of(spec(), moves, standing(strangers=(99,)), ()), ConditionType.PLAN_READY)
        assert found is not None
        assert "spec.leaving: 99: no such brokers" in found.message


def test_progress_counts_what_has_arrived() -> None:
    now = standing(WAITING, MOVING, GONE)
    found = progress_of(plan(), now, (row(remaining=400.0, eta=3600.0),), NOW)
    assert (found.done, found.moving, found.waiting, found.skipped) == (1, 1, 1, 1)
    assert (found.remaining_bytes, found.moved_bytes) == (1400, 1600)
    assert found.eta == "2026-01-01T13:00:00Z"
    assert progress_of(plan(), now, (row(eta=float("inf")),), NOW).eta == "never"


def test_the_one_that_executes_goes_first_then_the_oldest_that_is_approved() -> None:
    def candidate(
        place: str, created: str, *, executing: bool = False, approved: bool = True, cluster: str = "k"
    ) -> Candidate:
        return Candidate(place, cluster, created, executing, approved)

    old, new = candidate("x/old", "2026-01-01"), candidate("y/new", "2026-01-02")
    assert goes_first(Queue((new, old)), "x/old", "k") == ""
    assert goes_first(Queue((new, old)), "y/new", "k") == "x/old"
    assert goes_first(Queue((replace(new, executing=True), old)), "x/old", "k") == "y/new"
    assert goes_first(Queue((replace(old, approved=False), new)), "y/new", "k") == ""
    assert goes_first(Queue((replace(old, cluster_id="other"), new)), "y/new", "k") == ""
    assert goes_first(Queue((replace(old, finished=True), new)), "y/new", "k") == ""
    assert goes_first(Queue((new,), {"k": "x/deleted"}), "y/new", "k") == "x/deleted"


def test_a_deadline_counts_from_the_approval() -> None:
    asked = spec(execution={"deadline": "2h"})
    assert not overdue(asked, "", NOW)
    assert not overdue(asked, (NOW - timedelta(hours=1)).isoformat(), NOW)
    assert overdue(asked, (NOW - timedelta(hours=3)).isoformat(), NOW)
    assert not overdue(spec(), (NOW - timedelta(days=300)).isoformat(), NOW)


def inputs(replicas: tuple[int, ...] = (3, 1), moves: dict[TopicPartition, Move] | None = None) -> PlanInputs:
    partitions = {key: PartitionState(replicas, replicas[0], frozenset(replicas)) for key in KEYS}
    partitions[TopicPartition("__consumer_offsets", 0)] = PartitionState((3, 1), 3, frozenset({3, 1}))
    seen = Seen(partitions, moves or {}, frozenset({1, 2, 3}), {"t": "1", "__consumer_offsets": "2"})
    brokers = {id: Broker(id, rack) for id, rack in ((1, "a"), (2, "b"), (3, "c"))}
    sizes = dict.fromkeys(partitions, 1000.0)
    return PlanInputs(seen, brokers, Storage(dict.fromkeys(brokers, 1e9), sizes))


def test_replacing_a_broker_takes_internal_topics_too_and_leaves_nothing_on_it() -> None:
    made = make_plan(spec(), inputs())
    assert 3 not in made.after.brokers()
    assert TopicPartition("__consumer_offsets", 0) in made.after
    shown = plan_status(made, inputs().storage.sizes, "hash", "x-plan")
    assert (shown.partitions, shown.replicas_moved, shown.bytes) == (5, 5, 5000)


def test_a_lost_status_shows_the_plan_again_as_its_record_has_it() -> None:
    lost = shown_plan(PlanStatus(), plan(), "x-plan")
    assert (lost.hash, lost.partitions, lost.replicas_moved, lost.bytes) == (plan().hash, 4, 4, 4000)
    assert shown_plan(lost, plan(), "x-plan") is lost


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topics": {"include": ["nope"]}}, "no topic matches 'nope'"),
        ({"operation": "Rebuild", "leaving": [], "brokers": [1, 2, 98, 99]}, "spec.brokers: 98, 99: no such"),
        ({"leaving": [1, 2, 3]}, "no broker is left"),
        ({"operation": "SetReplication", "replicationFactor": 9}, "no broker may take replica"),
    ],
)
def test_what_cannot_be_planned_has_its_reasons(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make_plan(spec(**changes), inputs())


def test_no_plan_is_computed_on_top_of_moves_of_others() -> None:
    with pytest.raises(InvalidInput, match="something else"):
        make_plan(spec(), inputs(moves={KEYS[0]: Move((3, 1, 2), frozenset({2}), frozenset({3}))}))


def test_leadership_moves_no_replica() -> None:
    made = make_plan(spec(operation="Leadership"), inputs())
    assert {replicas[0] for replicas in made.after.values()} == {1}
    assert all(set(made.after[key]) == set(made.before[key]) for key in made.after)


def test_only_what_is_planned_is_another_question() -> None:
    asked = question(spec())
    assert asked == question(spec(paused=True, approvedPlan="0123456789abcdef", throttle={"minRate": "5M"}))
    assert asked != question(spec(leaving=[2]))
    assert asked != question(spec(topics={"exclude": ["x"]}))
    assert asked != question(spec(execution={"phased": True}))


def test_replicas_that_come_to_a_leaving_broker_meanwhile_need_another_plan() -> None:
    before = inputs()
    frozen = freeze("id", before.seen.topic_ids, PartitionMap({KEYS[0]: (3, 1)}), PartitionMap({KEYS[0]: (2, 1)}), {})
    now = Standing({move.key: Verdict.DONE for move in frozen.moves}, approved=True)
    assert left_on(spec(), now, before.seen) == (3,)
    assert left_on(spec(topics={"include": ["t"]}), now, before.seen) == (), "others were not asked for"
    assert left_on(spec(operation="Rebuild"), now, before.seen) == ()


def test_rates_have_units_and_mean_the_same_as_in_the_commands() -> None:
    throttle = spec(
        throttle={
            "capacity": {"default": "10Gbit/s", "byBroker": {"4": "64Mi"}},
            "overrides": {
                "everywhere": {"rate": "50MB/s", "expiresAt": "2026-01-01T00:00:00Z"},
                "brokers": {"3": {"rate": "1M"}},
            },
        }
    ).throttle
    settings, overrides = settings_of(throttle), overrides_of(throttle)
    assert (settings.capacity.of(1), settings.capacity.of(4)) == (1.25e9, float(64 << 20))
    assert (settings.min_rate, settings.max_outbound) == (10e6, 0.9)
    assert overrides.of(3) is not None
    assert (overrides.everywhere.rate, overrides.brokers[3].rate) == (50_000_000, 1_000_000)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clusterRef": {"blockAggregator": "x", "cluster": "a"}}, "either cluster or clusterRef"),
        ({"cluster": None}, "either cluster or clusterRef"),
        ({"leaving": []}, "ReplaceBrokers needs leaving"),
        ({"operation": "SetReplication"}, "SetReplication needs replicationFactor"),
        ({"throttle": {"minRate": "1250"}}, "spec.throttle.minRate"),
        ({"throttle": {"overrides": {"brokers": {"x": {"rate": "1M"}}}}}, "x: expected ids of brokers"),
        ({"throttle": {"load": {"source": "Prometheus"}}}, "needs prometheus with its url"),
        ({"throttle": {"load": {"source": "Static"}}}, "needs static with its configMapKeyRef"),
        ({"throttle": {"load": {"prometheus": {"url": "http://p", "queries": {"x": "up"}}}}}, "x: not among bytesIn"),
        ({"throttle": {"load": {"prometheus": {"url": "http://p", "brokerFromPod": "("}}}}, "brokerFromPod"),
        ({"throttle": {"load": {"prometheus": {"url": "http://p", "brokerFromPod": "a"}}}}, "has no group"),
        ({"throttle": {"capacity": {"byBroker": {"three": "5M"}}}}, "three: expected ids of brokers"),
        ({"approvedPlan": "yes"}, "spec.approvedPlan"),
    ],
)
def test_a_spec_at_fault_names_the_field(changes: dict[str, Any], words: str) -> None:
    content = {"cluster": CLUSTER, "operation": "ReplaceBrokers", "leaving": [3], **changes}
    with pytest.raises(InvalidSpec, match=words):
        parse_reassignment({"metadata": {"name": "x"}, "spec": {k: v for k, v in content.items() if v is not None}})
