"""How many cores and how much memory an aggregator needs for its streams. Advice, never an action.

Pure. The share of work of a replica is what it has while another one of its shard is down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from blockhouse.config.pipeline import GROWN_BYTES, Blocks
from blockhouse.load.model import Rate
from blockhouse.placement.model import TopicPartition

PLANNED = 0.70
"""The part of a core that is planned: the rest is for catching up, and for what no mean shows."""
BASE_MEMORY = 700 << 20
"""Bytes of an aggregator without work: driver, JVM and workers (PSS, docs/bench.md)."""
COPIES = 4.7
"""How often what streams have in hand is in memory: as fetched, as decoded columns, as the block to send. An aggregator
that drains a backlog, with blocks of 128 MiB in hand, takes 600 MiB more than one without work (docs/bench.md)."""


@dataclass(frozen=True, slots=True)
class Work:
    """What an aggregator does: CPU seconds for a million rows, rows in a message, tables with blocks in a round."""

    cpu_per_million_rows: float = 2.0
    rows_per_message: float = 1.0
    tables: int = 1

    def __post_init__(self) -> None:
        if not (self.cpu_per_million_rows > 0 and self.rows_per_message > 0 and self.tables > 0):
            raise ValueError("CPU seconds, rows in a message and tables must be above 0")

    def cores(self, messages: float) -> float:
        """Cores that so many messages/s keep busy."""
        return messages * self.rows_per_message * self.cpu_per_million_rows / 1e6


@dataclass(frozen=True, slots=True)
class Sizing:
    """For one topic: cores in all and of each replica, memory of each in bytes, and streams that one core cannot carry.

    `unknown` are streams without a known rate of messages: they are not in the figures.
    """

    topic: str
    streams: int
    messages: float
    cores: float
    cores_per_replica: int
    memory_per_replica: float
    hot: tuple[TopicPartition, ...]
    unknown: int


def cores_planned(busy: float, sharing: int, owned: int) -> int:
    """Cores of each of `sharing` replicas when `busy` cores of work are divided among them, at least 1.

    A replica never needs more cores than the `owned` streams it may have: a stream is one task.
    """
    return min(max(math.ceil(busy / PLANNED / sharing - 1e-9), 1), owned)


def memory_planned(owned: int, tables: int) -> float:
    """Bytes of an aggregator whose `owned` streams drain a backlog of so many tables at once, with default limits.

    A stream has a block of each table in hand, at most a round's bytes; blocks that grow share `GROWN_BYTES`.
    """
    limits = Blocks()
    in_hand = min(tables * limits.max_bytes, limits.max_bytes_per_round)
    return BASE_MEMORY + COPIES * max(GROWN_BYTES, owned * in_hand)


def sizing(rates: Mapping[TopicPartition, Rate], replicas: int, work: Work) -> list[Sizing]:
    """By topic, for `replicas` of its shard. One replica has everything; more share it, and survive one that is down.

    Raises ValueError below 1 replica.
    """
    if replicas < 1:
        raise ValueError(f"a shard has at least 1 replica, not {replicas}")
    topics: dict[str, dict[TopicPartition, Rate]] = {}
    for key, rate in rates.items():
        topics.setdefault(key.topic, {})[key] = rate
    return [_of_topic(topic, topics[topic], max(replicas - 1, 1), work) for topic in sorted(topics)]


def _of_topic(topic: str, rates: Mapping[TopicPartition, Rate], sharing: int, work: Work) -> Sizing:
    known = {key: rate.messages for key, rate in rates.items() if rate.messages is not None}
    busy = sum(map(work.cores, known.values()))
    owned = math.ceil(len(rates) / sharing)
    return Sizing(
        topic=topic,
        streams=len(rates),
        messages=sum(known.values()),
        cores=busy,
        cores_per_replica=cores_planned(busy, sharing, owned),
        memory_per_replica=memory_planned(owned, work.tables),
        hot=tuple(sorted(key for key, messages in known.items() if work.cores(messages) > PLANNED)),
        unknown=len(rates) - len(known),
    )
