"""What planning and executing need of a live cluster, and the contract an adapter fulfils. No client library here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from blockhouse.placement.model import Broker, ReplicaSet, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as the cluster sees it now. `leader` is None while nobody leads."""

    replicas: ReplicaSet
    leader: int | None
    in_sync: frozenset[int]


@dataclass(frozen=True, slots=True)
class Storage:
    """Measured from the brokers' log directories, in bytes: free space by broker, size by partition.

    The size of a partition is that of its largest replica. Brokers that do not tell their free space (before
    Kafka 3.3) are missing in `free`.
    """

    free: Mapping[int, float]
    sizes: Mapping[TopicPartition, float]


class Fleet(Protocol):
    """A live Kafka cluster. Every method raises Retryable or Permanent, naming the cluster."""

    def brokers(self) -> dict[int, Broker]:
        """Brokers that are alive, by id, without their free space."""

    def partitions(self) -> dict[TopicPartition, PartitionState]:
        """Every partition of every topic."""

    def storage(self) -> Storage:
        """Ask every live broker for its log directories."""

    def reassigning(self) -> dict[TopicPartition, ReplicaSet]:
        """Where the partitions being reassigned now are going."""

    def reassign(self, targets: Mapping[TopicPartition, ReplicaSet | None]) -> dict[TopicPartition, str]:
        """Start reassignments (None cancels one). Returns what was refused, with the reason."""

    def elect_preferred_leaders(self, partitions: Collection[TopicPartition]) -> None:
        """Ask the first replica of each to lead. Whether it could is seen in `partitions()`."""
