"""Topics of Kafka clusters: observed and changed over a connection of its own each time.

Connections are not kept between observations: a rotated password counts at once. Calls block; callers use threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet import topic_steps
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.topics import ClusterSeen, TopicStep
from blockhouse_operator.adapters.fence import Fence


def observe_topics(cluster: KafkaCluster, topics: Sequence[str]) -> ClusterSeen:
    """As `topic_steps.observe`."""
    with KafkaFleet(cluster) as fleet:
        return topic_steps.observe(fleet, topics)


def carry_out(cluster: KafkaCluster, steps: Sequence[TopicStep], fence: Fence) -> None:
    """As `topic_steps.carry_out`; the fence is asked before each step."""
    with KafkaFleet(cluster) as fleet:
        topic_steps.carry_out(fleet, steps, fence.check)


def delete_topics(cluster: KafkaCluster, topics: Sequence[str], fence: Fence) -> None:
    """Delete topics and all their messages: only where the resource's deletion policy is to delete them."""
    with KafkaFleet(cluster) as fleet:
        for topic in topics:
            fence.check()
            fleet.delete_topic(topic)
