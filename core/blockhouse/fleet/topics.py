"""What a Kafka cluster's topics lack: missing topics, partitions and settings, and what only a person can put right.

Partitions are never taken away and replicas never moved: a reassignment copies data, which `blockhouse topics` does
on request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from blockhouse.fleet.model import PartitionState
from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, ReplicaSet, TopicPartition
from blockhouse.placement.topics import assign_partitions

_CLEANUP = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class DesiredTopic:
    """A topic as a resource or a person asks for it."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)
    rack_aware: bool = True

    @property
    def judged_by(self) -> frozenset[str]:
        """The settings of a live topic by which `plan_topics` decides."""
        return frozenset({_CLEANUP, *self.config})


@dataclass(frozen=True)
class ClusterSeen:
    """One Kafka cluster at one moment: live brokers, every partition of every topic, settings of the desired topics
    (those that were asked for).

    `unread` are desired topics that exist and whose settings may not be read.
    """

    brokers: Mapping[int, Broker]
    partitions: Mapping[TopicPartition, PartitionState]
    configs: Mapping[str, Mapping[str, str]]
    unread: frozenset[str] = frozenset()

    def of_topic(self, topic: str) -> Sequence[PartitionState]:
        """The partitions of a topic by their number; none where there is no such topic."""
        return self._by_topic.get(topic, ())

    @cached_property
    def _by_topic(self) -> Mapping[str, Sequence[PartitionState]]:
        found: dict[str, list[PartitionState]] = defaultdict(list)
        for key in sorted(self.partitions):
            found[key.topic].append(self.partitions[key])
        return found


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Make the topic. Without `sets` the brokers choose where its replicas are."""

    topic: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    sets: tuple[ReplicaSet, ...] | None


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Let the topic have `total` partitions; `sets` are those of the new ones."""

    topic: str
    total: int
    sets: tuple[ReplicaSet, ...] | None


@dataclass(frozen=True, slots=True)
class SetConfig:
    """Set what differs."""

    topic: str
    config: Mapping[str, str]


TopicStep = CreateTopic | AddPartitions | SetConfig


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Steps in order, and faults that no step repairs, each a sentence."""

    steps: tuple[TopicStep, ...]
    faults: tuple[str, ...]


def plan_topics(desired: Sequence[DesiredTopic], seen: ClusterSeen) -> TopicPlan:
    """Total: a topic that cannot be placed is a fault and does not keep the others from their steps."""
    steps: list[TopicStep] = []
    faults: list[str] = []
    added: dict[TopicPartition, ReplicaSet] = {}
    for topic in desired:
        have = seen.of_topic(topic.name)
        try:
            sets = _place_missing(topic, len(have), seen, added)
        except InvalidInput as error:
            faults.append(str(error))
            continue
        if sets is not None:
            added |= {TopicPartition(topic.name, number): replicas for number, replicas in enumerate(sets, len(have))}
        if not have:
            steps.append(CreateTopic(topic.name, topic.partitions, topic.replication, dict(topic.config), sets))
            continue
        if len(have) < topic.partitions:
            steps.append(AddPartitions(topic.name, topic.partitions, sets))
        found = seen.configs.get(topic.name, {})
        differing = {name: value for name, value in topic.config.items() if found.get(name) != value}
        if differing:
            steps.append(SetConfig(topic.name, differing))
        faults += _faults(topic, seen, found)
    return TopicPlan(tuple(steps), tuple(faults))


def _place_missing(
    topic: DesiredTopic, have: int, seen: ClusterSeen, added: Mapping[TopicPartition, ReplicaSet]
) -> tuple[ReplicaSet, ...] | None:
    numbers = range(have, topic.partitions)
    if not numbers or not topic.rack_aware:
        return None
    placed = PartitionMap({**{key: state.replicas for key, state in seen.partitions.items()}, **added})
    new = assign_partitions(topic.name, numbers, topic.replication, seen.brokers, placed)
    return tuple(new[TopicPartition(topic.name, number)] for number in numbers)


def _faults(topic: DesiredTopic, seen: ClusterSeen, config: Mapping[str, str]) -> Iterator[str]:
    if "compact" in config.get(_CLEANUP, "") and _CLEANUP not in topic.config:
        yield f"topic {topic.name} is compacted and cannot be loaded exactly once; set cleanup.policy=delete"
    partitions = seen.of_topic(topic.name)
    have = len(partitions)
    if have > topic.partitions:
        yield (
            f"topic {topic.name} has {have} partitions and {topic.partitions} are asked for: partitions are never "
            f"removed, all of them are loaded; ask for {have}"
        )
    counts = {len(state.replicas) for state in partitions}
    if counts != {topic.replication}:
        shown = ", ".join(map(str, sorted(counts)))
        yield (
            f"topic {topic.name} has partitions with {shown} replicas instead of {topic.replication}; "
            "change it with 'blockhouse topics plan rebuild --replication', which copies data"
        )
