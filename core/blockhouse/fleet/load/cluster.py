"""What a source with names of its own needs of the cluster: brokers by host, topics with their leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.kafka_client import KafkaRequests
from blockhouse.placement.model import TopicPartition

SHOWN = 5


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """A cluster's id, the host of each live broker, topics' numbers of partitions, leaders of those that have one."""

    cluster_id: str
    hosts: Mapping[int, str]
    counts: Mapping[str, int]
    leaders: Mapping[TopicPartition, int]


class Named(Protocol):
    """Knows the names of a cluster."""

    def names(self) -> ClusterNames:
        """Raises Retryable when the cluster does not answer."""


class LiveNames:
    """The names as the cluster gives them now."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._requests = KafkaRequests(cluster)

    def names(self) -> ClusterNames:
        described, topics = self._requests.ask("describe_cluster"), self._requests.ask("describe_topics")
        return ClusterNames(
            str(described["cluster_id"]),
            {broker["broker_id"]: str(broker["host"]) for broker in described["brokers"]},
            {topic["name"]: len(topic["partitions"]) for topic in topics},
            {
                TopicPartition(topic["name"], partition["partition_index"]): partition["leader_id"]
                for topic in topics
                for partition in topic["partitions"]
                if partition["leader_id"] >= 0
            },
        )

    def close(self) -> None:
        self._requests.close()


def some_names(names: Iterable[str]) -> str:
    """The first of these names as a reader wants them, and how many more there are."""
    ordered = sorted(names)
    return ", ".join(ordered[:SHOWN]) + (f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else "")
