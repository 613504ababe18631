"""Topics of Kafka clusters: what there is, and the steps of `decide.topics` carried out.

Connections are not kept between observations: a rotated password counts at once. Calls block; callers use threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.decide.topics import AddPartitions, ClusterSeen, CreateTopic, SetConfig, TopicStep


def observe_topics(cluster: KafkaCluster, topics: Sequence[str]) -> ClusterSeen:
    """Raises Retryable when the cluster does not answer, Permanent when it refuses us; asked for one topic alone also
    where its settings may not be read."""
    with KafkaFleet(cluster) as fleet:
        brokers, partitions = fleet.brokers(), fleet.partitions()
        existing = {key.topic for key in partitions}
        unread: list[str] = []
        found = [topic for topic in topics if topic in existing]
        configs = fleet.topic_configs(found, unread if len(topics) > 1 else None)
        return ClusterSeen(brokers, partitions, configs, frozenset(unread))


def carry_out(cluster: KafkaCluster, steps: Sequence[TopicStep], fence: Fence) -> None:
    """Every step, in order; the fence is asked before each. Raises as `observe_topics`; steps may be repeated."""
    with KafkaFleet(cluster) as fleet:
        for step in steps:
            fence.check()
            match step:
                case CreateTopic():
                    fleet.create_topic(step.topic, step.partitions, step.replication, step.config, step.sets)
                case AddPartitions():
                    fleet.add_partitions(step.topic, step.total, step.sets)
                case SetConfig():
                    fleet.change_topic(step.topic, step.config)


def delete_topics(cluster: KafkaCluster, topics: Sequence[str], fence: Fence) -> None:
    """Delete topics and all their messages: only where the resource's deletion policy is to delete them."""
    with KafkaFleet(cluster) as fleet:
        for topic in topics:
            fence.check()
            fleet.delete_topic(topic)
