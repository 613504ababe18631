"""The values placement works on: which broker holds which replica, and what the brokers have left.

Pure values: nothing here (or anywhere in this package) may know a Kafka client, a clock, a thread or chance.
Every collection iterates in one order (topic, partition number; broker id), so no result depends on the order in
which the input was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

from blockhouse.errors import Permanent


class InvalidInput(Permanent):
    """The input of a plan contradicts itself or lacks something; `problems` lists everything that was found."""

    exit_code = 2

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems), reason="InvalidPlacementInput")


class TopicPartition(NamedTuple):
    """One partition of one topic; sorts by topic, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic} partition {self.partition}"


ReplicaSet = tuple[int, ...]
"""Broker ids; the first is the preferred leader."""

Sizes = Mapping[TopicPartition, float]
"""Bytes of one replica of each partition."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker of the cluster.

    `free` is its free space in bytes (None when it was not measured), `used` the replicas it holds of partitions
    that are not part of the map being planned. An empty `rack` never collides with another.
    """

    id: int
    rack: str = ""
    free: float | None = None
    used: int = 0


class PartitionMap(Mapping[TopicPartition, ReplicaSet]):
    """Replica set of every partition, immutable, in the order of topic and partition number.

    Raises InvalidInput when a replica set is empty or names a broker twice.
    """

    __slots__ = ("_sets",)

    def __init__(self, sets: Mapping[TopicPartition, Iterable[int]]) -> None:
        self._sets = {key: tuple(sets[key]) for key in sorted(sets)}
        problems = [
            f"{key}: the replica set is empty; name at least one broker"
            if not replicas
            else f"{key}: the replica set {list(replicas)} names a broker twice; name each broker once"
            for key, replicas in self._sets.items()
            if len(set(replicas)) != max(len(replicas), 1)
        ]
        if problems:
            raise InvalidInput(problems)

    def __getitem__(self, key: TopicPartition) -> ReplicaSet:
        return self._sets[key]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def __repr__(self) -> str:
        return f"PartitionMap({self._sets!r})"

    def brokers(self) -> frozenset[int]:
        """Ids of all brokers that hold a replica."""
        return frozenset(chain.from_iterable(self._sets.values()))

    def topics(self) -> tuple[str, ...]:
        """Names of the topics, each once, in the order of the map."""
        return tuple(dict.fromkeys(key.topic for key in self._sets))

    def updated(self, changes: Mapping[TopicPartition, Iterable[int]]) -> PartitionMap:
        """This map with the sets in `changes` put over its own."""
        return PartitionMap({**self._sets, **changes})

    def only(self, requested: Callable[[str], bool]) -> PartitionMap:
        """The partitions of the topics for which `requested(topic)` is true."""
        return PartitionMap({key: replicas for key, replicas in self._sets.items() if requested(key.topic)})

    def changed_from(self, before: Mapping[TopicPartition, ReplicaSet]) -> PartitionMap:
        """The partitions whose replica set (order included) differs from `before`: what is worth executing."""
        return PartitionMap({key: replicas for key, replicas in self._sets.items() if before.get(key) != replicas})

    def replica_counts(self) -> dict[int, int]:
        """Replicas held, by broker id."""
        counts: dict[int, int] = {}
        for broker in chain.from_iterable(self._sets.values()):
            counts[broker] = counts.get(broker, 0) + 1
        return counts

    def leader_counts(self) -> dict[int, int]:
        """Partitions led when every preferred leader leads, by broker id."""
        counts: dict[int, int] = {}
        for replicas in self._sets.values():
            counts[replicas[0]] = counts.get(replicas[0], 0) + 1
        return counts


def brokers_by_id(brokers: Iterable[Broker]) -> dict[int, Broker]:
    """Index by id, ascending. Raises InvalidInput when an id comes twice."""
    ordered = sorted(brokers, key=lambda broker: broker.id)
    twice = sorted({a.id for a, b in pairwise(ordered) if a.id == b.id})
    if twice:
        raise InvalidInput(f"broker {id} is described twice; describe each broker once" for id in twice)
    return {broker.id: broker for broker in ordered}
