"""What topics lack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blockhouse.fleet.model import PartitionState
from blockhouse.fleet.topics import (
    AddPartitions,
    ClusterSeen,
    CreateTopic,
    DesiredTopic,
    SetConfig,
    plan_topics,
)
from blockhouse.placement.model import Broker, TopicPartition

BROKERS = {n: Broker(n, rack) for n, rack in ((1, "x"), (2, "x"), (3, "y"), (4, "y"))}


def seen(topics: Mapping[str, list[tuple[int, ...]]] | None = None, **configs: dict[str, str]) -> ClusterSeen:
    partitions = {
        TopicPartition(topic, n): PartitionState(replicas, replicas[0], frozenset(replicas))
        for topic, sets in (topics or {}).items()
        for n, replicas in enumerate(sets)
    }
    return ClusterSeen(BROKERS, partitions, configs)


def desired(**changes: Any) -> DesiredTopic:
    return DesiredTopic(**{"name": "t", "partitions": 4, "replication": 2, "config": {"retention.ms": "5"}} | changes)


def test_a_missing_topic_is_created_with_a_replica_in_each_rack_and_leaders_even() -> None:
    plan = plan_topics([desired()], seen())

    (step,) = plan.steps
    assert isinstance(step, CreateTopic)
    assert step.sets is not None
    assert all({BROKERS[b].rack for b in replicas} == {"x", "y"} for replicas in step.sets)
    assert sorted(replicas[0] for replicas in step.sets) == [1, 2, 3, 4]


def test_two_new_topics_are_spread_with_each_other_in_mind() -> None:
    plan = plan_topics([desired(name="t1", partitions=2), desired(name="t2", partitions=2)], seen())

    leaders = [r[0] for step in plan.steps if isinstance(step, CreateTopic) for r in step.sets or ()]
    assert sorted(leaders) == [1, 2, 3, 4]


def test_the_brokers_place_where_the_resource_leaves_it_to_them() -> None:
    (step,) = plan_topics([desired(rack_aware=False)], seen()).steps
    assert isinstance(step, CreateTopic)
    assert step.sets is None


def test_a_topic_only_grows_and_nothing_of_it_moves() -> None:
    grown = plan_topics([desired(config={})], seen({"t": [(1, 3), (2, 4)]}))
    (step,) = grown.steps
    assert isinstance(step, AddPartitions)
    assert step.total == 4
    assert len(step.sets or ()) == 2

    assert plan_topics([desired(partitions=1, config={})], seen({"t": [(1, 3), (2, 4)]})).steps == ()


def test_only_settings_that_differ_are_set() -> None:
    topic = {"t": [(1, 3)] * 4}
    config = {"retention.ms": "5", "max.message.bytes": "9"}
    plan = plan_topics([desired(config=config)], seen(topic, t={"retention.ms": "7", "max.message.bytes": "9"}))
    assert plan.steps == (SetConfig("t", {"retention.ms": "5"}),)

    assert plan_topics([desired(config=config)], seen(topic, t=config)).steps == ()


def test_what_no_step_repairs_is_a_fault_that_names_the_topic_and_the_way_out() -> None:
    (fault,) = plan_topics([desired(config={})], seen({"t": [(1,)] * 4})).faults
    assert "topic t has partitions with 1 replicas instead of 2" in fault
    (fault,) = plan_topics([desired(config={})], seen({"t": [(1, 3)] * 4}, t={"cleanup.policy": "compact"})).faults
    assert "compacted" in fault


def test_a_topic_that_cannot_be_placed_does_not_keep_others_from_their_steps() -> None:
    plan = plan_topics([desired(name="big", replication=9), desired(name="small")], seen())

    assert [step.topic for step in plan.steps] == ["small"]
    assert "9 replicas cannot be placed on 4 brokers" in plan.faults[0]
