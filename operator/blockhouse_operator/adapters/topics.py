"""Topics of Kafka clusters: observed and changed over a connection of its own each time.

Connections are not kept between observations: a rotated password counts at once. Calls block; callers use threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent
from blockhouse.fleet import topic_steps
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.topics import ClusterSeen, TopicStep
from blockhouse_operator.adapters.fence import Fence


def observe_topics(
    cluster: KafkaCluster,
    topics: Sequence[str],
    known: ClusterSeen | None = None,
    settings: Collection[str] | None = None,
) -> ClusterSeen:
    """As `topic_steps.observe`."""
    with KafkaFleet(cluster) as fleet:
        return topic_steps.observe(fleet, topics, known, settings)


def carry_out(cluster: KafkaCluster, steps: Iterable[TopicStep], fence: Fence) -> dict[str, Permanent]:
    """As `topic_steps.carry_out`; the fence is asked before each step. Returns what was refused, by topic: no further
    step of such a topic is taken, those of the others are."""
    refused: dict[str, Permanent] = {}
    with KafkaFleet(cluster) as fleet:
        for step in steps:
            if step.topic not in refused:
                try:
                    topic_steps.carry_out(fleet, [step], fence.check)
                except Permanent as error:
                    refused[step.topic] = error
    return refused


def delete_topics(cluster: KafkaCluster, topics: Sequence[str], fence: Fence) -> None:
    """Delete topics and all their messages: only where the resource's deletion policy is to delete them."""
    with KafkaFleet(cluster) as fleet:
        for topic in topics:
            fence.check()
            fleet.delete_topic(topic)
