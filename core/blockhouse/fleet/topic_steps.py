"""Topics of a live cluster: what there is, and the steps of `fleet.topics` carried out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.topics import AddPartitions, ClusterSeen, CreateTopic, SetConfig, TopicStep


def observe(
    fleet: KafkaFleet, topics: Sequence[str], known: ClusterSeen | None = None, settings: Collection[str] | None = None
) -> ClusterSeen:
    """Brokers, all partitions, and `settings` of `topics`, or all of theirs. With `known` only these topics are read,
    and the others are as they were in it. Raises Retryable when the cluster does not answer, Permanent when it refuses
    us; asked for one topic alone also where its settings may not be read."""
    brokers, partitions = fleet.brokers(), fleet.partitions(None if known is None else topics)
    existing = {key.topic for key in partitions}
    if known is not None:
        others = set(topics)
        partitions |= {key: state for key, state in known.partitions.items() if key.topic not in others}
    unread: list[str] = []
    found = [topic for topic in topics if topic in existing]
    configs = fleet.topic_configs(found, unread if len(topics) > 1 else None, settings)
    return ClusterSeen(brokers, partitions, configs, frozenset(unread))


def carry_out(fleet: KafkaFleet, steps: Sequence[TopicStep], check: Callable[[], None] = lambda: None) -> None:
    """Every step, in order; `check` is called before each. Raises as `observe`; steps may be repeated."""
    for step in steps:
        check()
        match step:
            case CreateTopic():
                fleet.create_topic(step.topic, step.partitions, step.replication, step.config, step.sets)
            case AddPartitions():
                fleet.add_partitions(step.topic, step.total, step.sets)
            case SetConfig():
                fleet.change_topic(step.topic, step.config)
