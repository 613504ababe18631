"""Topics on a real broker: made, grown, repaired, and left alone once they are as wanted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.adapters.topics import carry_out, delete_topics, observe_topics
from blockhouse_operator.decide.topics import CreateTopic, TopicPlan, TopicWanted, plan_topics
from e2e.stack import Stack
from e2e.stack.ports import Ports
from tests.integration.conftest import Names

pytestmark = pytest.mark.integration


def settle(cluster: KafkaCluster, wanted: TopicWanted) -> TopicPlan:
    """Carry out what is planned; then nothing may be left to do."""
    plan = plan_topics([wanted], observe_topics(cluster, [wanted.name]))
    carry_out(cluster, plan.steps, OpenFence())
    assert plan_topics([wanted], observe_topics(cluster, [wanted.name])).steps == ()
    return plan


def test_a_topic_is_made_grown_repaired_and_then_left_alone(stack: Stack, names: Names) -> None:
    cluster = KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)
    wanted = TopicWanted(names.topic, 2, 1, {"retention.ms": "86400000"})

    made = settle(cluster, wanted)
    assert [type(step).__name__ for step in made.steps] == ["CreateTopic"]
    assert settle(cluster, wanted).steps == ()

    grown = settle(cluster, replace(wanted, partitions=5))
    assert [type(step).__name__ for step in grown.steps] == ["AddPartitions"]
    assert settle(cluster, wanted).steps == (), "partitions never shrink"

    repaired = settle(cluster, replace(wanted, config={"retention.ms": "3600000", "max.message.bytes": "2000000"}))
    assert [type(step).__name__ for step in repaired.steps] == ["SetConfig"]

    delete_topics(cluster, [names.topic], OpenFence())
    delete_topics(cluster, [names.topic], OpenFence())


def test_steps_that_another_operator_took_first_do_no_harm(stack: Stack, names: Names) -> None:
    cluster = KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)
    wanted = TopicWanted(names.topic, 2, 1, rack_aware=False)
    plan = plan_topics([wanted], observe_topics(cluster, [wanted.name]))
    growth = plan_topics([replace(wanted, partitions=3)], observe_topics(cluster, [wanted.name]))
    assert isinstance(growth.steps[0], CreateTopic)

    carry_out(cluster, plan.steps, OpenFence())
    carry_out(cluster, plan.steps, OpenFence())
    grow = plan_topics([replace(wanted, partitions=3)], observe_topics(cluster, [wanted.name])).steps
    carry_out(cluster, grow, OpenFence())
    carry_out(cluster, grow, OpenFence())

    assert len([k for k in observe_topics(cluster, [wanted.name]).partitions if k.topic == wanted.name]) == 3


def test_a_cluster_that_does_not_answer_is_named() -> None:
    ports = Ports()
    nobody = KafkaCluster(name="gone", bootstrap_servers=f"127.0.0.1:{ports['nobody']}")
    with pytest.raises(Retryable, match="Kafka cluster gone at"):
        observe_topics(nobody, [])
    ports.release()
