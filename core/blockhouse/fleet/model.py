"""What planning and executing need of a live cluster, and the contract an adapter fulfils. No client library here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from blockhouse.placement.model import Broker, ReplicaSet, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as the cluster sees it now. `leader` is None while it has no leader."""

    replicas: ReplicaSet
    leader: int | None
    in_sync: frozenset[int]


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that is being reassigned: all its replicas, those that arrive, those that leave."""

    replicas: ReplicaSet
    adding: frozenset[int]
    removing: frozenset[int]

    @property
    def target(self) -> ReplicaSet:
        """The replica set it will have."""
        return tuple(id for id in self.replicas if id not in self.removing)


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """One replica on one broker's disk: `size` in bytes, `lag` in offsets behind what it could have."""

    size: float
    lag: int


@dataclass(frozen=True, slots=True)
class Storage:
    """Measured from the brokers' log directories, in bytes: free space by broker, size by partition.

    The size of a partition is that of its largest replica. Brokers that do not report their free space (before
    Kafka 3.3) are missing in `free`. `replicas` has each replica by itself, the arriving ones included.
    """

    free: Mapping[int, float]
    sizes: Mapping[TopicPartition, float]
    replicas: Mapping[tuple[TopicPartition, int], ReplicaLog] = field(default_factory=dict)


class SettingSource(StrEnum):
    """Where the value of a setting comes from. What is none of these is the broker's built-in default."""

    TOPIC = "topic"
    BROKER = "broker"
    CLUSTER = "cluster-wide default"
    FILE = "broker's file"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that was given explicitly. After its removal another source may still give it: judge by `source`."""

    value: str
    source: SettingSource


class Fleet(Protocol):
    """A live Kafka cluster. Every method raises Retryable or Permanent, naming the cluster."""

    def brokers(self) -> dict[int, Broker]:
        """Brokers that are alive, by id, without their free space."""

    def partitions(self) -> dict[TopicPartition, PartitionState]:
        """Every partition of every topic."""

    def require_visible(self, topics: Collection[str]) -> None:
        """Of topics that are not among the partitions: raises Permanent unless they are gone, not merely hidden."""

    def storage(self) -> Storage:
        """Ask every live broker for its log directories."""

    def moves(self) -> dict[TopicPartition, Move]:
        """The partitions being reassigned now, by whomever."""

    def reassign(self, targets: Mapping[TopicPartition, ReplicaSet | None]) -> dict[TopicPartition, str]:
        """Start reassignments (None cancels one). Returns what was refused, with the reason."""

    def elect_preferred_leaders(self, partitions: Collection[TopicPartition]) -> None:
        """Ask the first replica of each to lead. Whether it could is seen in `partitions()`."""


class ThrottledFleet(Fleet, Protocol):
    """A live cluster whose replication can be throttled."""

    def topic_settings(self, topics: Collection[str], only: Collection[str]) -> dict[str, dict[str, Setting]]:
        """The settings named in `only` of these topics, if given explicitly; unknown topics are left out."""

    def broker_settings(self, brokers: Collection[int], only: Collection[str]) -> dict[int, dict[str, Setting]]:
        """The same of brokers, which must be alive."""

    def change_topic(self, topic: str, values: Mapping[str, str], removed: Collection[str] = ()) -> None:
        """Set and remove named settings of a topic; all its others stay. Permanent with the broker's refusal."""

    def change_broker(self, broker: int, values: Mapping[str, str], removed: Collection[str] = ()) -> None:
        """The same of a broker, which must be alive."""
