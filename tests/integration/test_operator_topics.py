"""Topics on a real broker: created, grown, repaired, and left alone once they are as desired."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.topics import CreateTopic, DesiredTopic, SetConfig, TopicPlan, plan_topics
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.adapters.topics import carry_out, delete_topics, observe_topics
from blockhouse_operator.api.conditions import ConditionType, Reason, find
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.status import TopicStatus
from blockhouse_operator.decide.shard import describe_shard, plan_shard
from blockhouse_operator.reconcile.services import Troubles
from blockhouse_operator.reconcile.topics import TopicKeeper
from e2e.stack import Stack
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from tests.integration.conftest import Names
from tests.unit.operator.resources import pipeline
from tests.unit.operator.shard_world import consuming, shard

pytestmark = pytest.mark.integration


def settle(cluster: KafkaCluster, desired: DesiredTopic) -> TopicPlan:
    """Carry out what is planned; then nothing may be left to do."""
    plan = plan_topics([desired], observe_topics(cluster, [desired.name]))
    carry_out(cluster, plan.steps, OpenFence())
    assert wait_until(lambda: not plan_topics([desired], observe_topics(cluster, [desired.name])).steps, timeout=60)
    return plan


def partitions(cluster: KafkaCluster, topic: str) -> int:
    """How many the topic has by the broker that answers, which learns of changes a moment after the controller."""
    return len(observe_topics(cluster, [topic]).of_topic(topic))


def test_a_topic_is_created_grown_repaired_and_then_left_alone(stack: Stack, names: Names) -> None:
    cluster = KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)
    desired = DesiredTopic(names.topic, 2, 1, {"retention.ms": "86400000"})

    made = settle(cluster, desired)
    assert [type(step).__name__ for step in made.steps] == ["CreateTopic"]
    assert settle(cluster, desired).steps == ()

    grown = settle(cluster, replace(desired, partitions=5))
    assert [type(step).__name__ for step in grown.steps] == ["AddPartitions"]
    assert settle(cluster, desired).steps == (), "partitions never shrink"

    repaired = settle(cluster, replace(desired, config={"retention.ms": "3600000", "max.message.bytes": "2000000"}))
    assert [type(step).__name__ for step in repaired.steps] == ["SetConfig"]

    delete_topics(cluster, [names.topic], OpenFence())
    delete_topics(cluster, [names.topic], OpenFence())


def test_steps_that_another_operator_took_first_do_no_harm(stack: Stack, names: Names) -> None:
    cluster = KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)
    desired = DesiredTopic(names.topic, 2, 1, rack_aware=False)
    plan = plan_topics([desired], observe_topics(cluster, [desired.name]))
    growth = plan_topics([replace(desired, partitions=3)], observe_topics(cluster, [desired.name]))
    assert isinstance(growth.steps[0], CreateTopic)

    carry_out(cluster, plan.steps, OpenFence())
    carry_out(cluster, plan.steps, OpenFence())
    assert wait_until(lambda: partitions(cluster, desired.name) == 2, timeout=60)
    grow = plan_topics([replace(desired, partitions=3)], observe_topics(cluster, [desired.name])).steps
    carry_out(cluster, grow, OpenFence())
    carry_out(cluster, grow, OpenFence())

    assert wait_until(lambda: partitions(cluster, desired.name) == 3, timeout=60)


def test_single_topics_are_read_into_what_is_known_of_the_cluster(stack: Stack, names: Names) -> None:
    cluster = KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)
    first, second = (DesiredTopic(f"{names.topic}-{number}", 2, 1, rack_aware=False) for number in (1, 2))
    carry_out(cluster, plan_topics([first], observe_topics(cluster, [])).steps, OpenFence())
    assert wait_until(lambda: partitions(cluster, first.name) == 2, timeout=60)
    known = observe_topics(cluster, [first.name])
    carry_out(cluster, plan_topics([second], known).steps, OpenFence())

    read = [second.name, "not-there"]
    assert wait_until(lambda: len(observe_topics(cluster, read, known).of_topic(second.name)) == 2, timeout=60)
    seen = observe_topics(cluster, read, known)
    assert seen.of_topic(first.name) == known.of_topic(first.name)
    assert (seen.of_topic("not-there"), set(seen.configs)) == ((), {second.name})
    delete_topics(cluster, [first.name], OpenFence())
    assert wait_until(lambda: not observe_topics(cluster, [first.name], known).of_topic(first.name), timeout=60)


def test_only_settings_by_which_a_topic_is_judged_are_read(stack: Stack, names: Names) -> None:
    cluster = KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)
    compacted = {"retention.ms": "1000000", "segment.ms": "7000000", "cleanup.policy": "compact"}
    made = DesiredTopic(names.topic, 1, 1, compacted, rack_aware=False)
    carry_out(cluster, plan_topics([made], observe_topics(cluster, [])).steps, OpenFence())
    assert wait_until(lambda: partitions(cluster, names.topic) == 1, timeout=60)
    desired = replace(made, config={"retention.ms": "2000000"})

    seen = observe_topics(cluster, [names.topic], settings=desired.judged_by)

    assert seen.configs == {names.topic: {"retention.ms": "1000000", "cleanup.policy": "compact"}}
    plan = plan_topics([desired], seen)
    assert plan.steps == (SetConfig(names.topic, {"retention.ms": "2000000"}),)
    assert any("compacted" in fault for fault in plan.faults)


def test_a_topic_that_is_refused_keeps_no_other_from_its_steps(stack: Stack, names: Names) -> None:
    cluster = KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)
    refused, made = f"{names.topic}-refused", f"{names.topic}-made"
    steps = [CreateTopic(refused, 1, 9, {}, None), SetConfig(refused, {}), CreateTopic(made, 1, 1, {}, None)]

    assert set(carry_out(cluster, steps, OpenFence())) == {refused}

    assert wait_until(lambda: partitions(cluster, made) == 1, timeout=60)
    assert partitions(cluster, refused) == 0


def test_a_cluster_that_does_not_answer_is_named() -> None:
    ports = Ports()
    unreachable = KafkaCluster(name="gone", bootstrap_servers=f"127.0.0.1:{ports['closed']}")
    with pytest.raises(Retryable, match="Kafka cluster gone at"):
        observe_topics(unreachable, [])
    ports.release()


REFUSED = [
    ("retention.ms", "abc", "abc"),
    ("cleanup.policy", "nonsense", "nonsense"),
    ("min.insync.replicas", "0", "at least 1"),
    ("retension.ms", "3600000", "retension.ms"),
]


@pytest.mark.parametrize(("name", "value", "words"), REFUSED)
def test_a_setting_that_the_broker_refuses_is_permanent_with_its_words(
    stack: Stack, names: Names, name: str, value: str, words: str
) -> None:
    cluster = KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)
    settle(cluster, DesiredTopic(names.topic, 1, 1, {"retention.ms": "86400000"}))
    with KafkaFleet(cluster) as fleet:
        with pytest.raises(Permanent, match=f"settings of topic {names.topic} .*{words}"):
            fleet.change_topic(names.topic, {"max.message.bytes": "2000000", name: value})
        assert fleet.topic_configs([names.topic]) == {names.topic: {"retention.ms": "86400000"}}


async def test_a_misspelt_setting_is_a_condition_of_its_topic_and_a_shard_is_reconciled_all_the_same(
    stack: Stack, names: Names
) -> None:
    """The topic exists already in both clusters, so the shard's reconcile has to change its settings."""
    clusters = [{"name": n, "bootstrapServers": stack.kafka[n].bootstrap} for n in ("a", "b")]
    made = pipeline(
        ("spec.kafka.clusters", clusters),
        ("spec.kafka.topic.nameTemplate", f"{names.topic}-{{shard}}"),
        ("spec.kafka.topic.partitions", 1),
        ("spec.kafka.topic.replicationFactor", 1),
        ("spec.kafka.topic.config", {"retension.ms": "3600000"}),
    )
    spec = resolve(made, 0)
    for name in ("a", "b"):
        settle(
            KafkaCluster(name=name, bootstrap_servers=stack.kafka[name].bootstrap),
            DesiredTopic(spec.kafka.topic.name, 1, 1),
        )
    contents: Any = SimpleNamespace(
        version=lambda: "", kafka=lambda c: KafkaCluster(name=c.name, bootstrap_servers=c.bootstrap_servers)
    )
    services: Any = SimpleNamespace(
        clock=time.monotonic, troubles=Troubles(time.monotonic), fence=OpenFence(), dry_run=False
    )
    keeper = TopicKeeper(services)
    found: tuple[TopicStatus, ...] = ()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found, trouble = await keeper.keep(spec, contents, found)
        if {status.state for status in found} == {Reason.TOPIC_FAILED.value}:
            break
    assert [(s.cluster, s.state) for s in found] == [("a", "TopicFailed"), ("b", "TopicFailed")], found
    assert trouble == {}, "a refusal is no silence"
    seen = shard(*(consuming(replica.name) for replica in spec.replicas))
    _, conditions = describe_shard(spec, seen, plan_shard(spec, seen), found, ())
    condition = find(conditions, ConditionType.TOPICS_PROVISIONED)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "TopicFailed")
    assert "retension.ms" in condition.message
