"""Topics of Kafka clusters: what there is, and the steps of `decide.topics` carried out.

Connections are not kept between turns: a rotated password counts at once. Calls block; callers use threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.decide.topics import AddPartitions, ClusterSeen, CreateTopic, SetConfig, TopicStep


def observe_topics(cluster: KafkaCluster, topics: Sequence[str]) -> ClusterSeen:
    """Raises Retryable when the cluster does not answer, Permanent when it refuses us."""
    with KafkaFleet(cluster) as fleet:
        brokers, partitions = fleet.brokers(), fleet.partitions()
        existing = {key.topic for key in partitions}
        return ClusterSeen(brokers, partitions, fleet.topic_configs([t for t in topics if t in existing]))


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
                    fleet.set_topic_configs(step.topic, step.config)


def delete_topics(cluster: KafkaCluster, topics: Sequence[str], fence: Fence) -> None:
    """Delete topics and all their messages: only where the resource's deletion policy says so."""
    with KafkaFleet(cluster) as fleet:
        for topic in topics:
            fence.check()
            fleet.delete_topic(topic)
