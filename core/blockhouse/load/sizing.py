"""How many cores and how much memory an aggregator needs for its streams. Advice, never an action.

Pure. The share of work of a replica is what it has while another one of its shard is down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from blockhouse.load.model import Rate
from blockhouse.placement.model import TopicPartition

PLANNED = 0.70
"""The part of a core that is planned: the rest is for catching up, and for what no mean shows."""
BASE_MEMORY = 600e6
"""Bytes an aggregator takes before any stream does."""
ROUND_COPIES = 2.5
"""A round's bytes are in memory as fetched, as decoded columns, and for a part of the time as the block to send."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a core does: CPU seconds for a million rows, rows in a message, bytes a stream reads in one round."""

    cpu_per_million_rows: float = 2.0
    rows_per_message: float = 1.0
    bytes_per_round: float = 96 << 20

    def __post_init__(self) -> None:
        if not (self.cpu_per_million_rows > 0 and self.rows_per_message > 0 and self.bytes_per_round > 0):
            raise ValueError("CPU seconds, rows in a message and bytes in a round must be above 0")

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


def sizing(rates: Mapping[TopicPartition, Rate], replicas: int, work: Work) -> list[Sizing]:
    """By topic, for `replicas` of its shard. One replica has everything; more share it, and survive one that is down.

    A replica never needs more cores than streams it may own: a stream is one task. Raises ValueError below 1 replica.
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
    cores = min(max(math.ceil(busy / PLANNED / sharing - 1e-9), 1), owned)
    return Sizing(
        topic=topic,
        streams=len(rates),
        messages=sum(known.values()),
        cores=busy,
        cores_per_replica=cores,
        memory_per_replica=BASE_MEMORY + cores * ROUND_COPIES * work.bytes_per_round,
        hot=tuple(sorted(key for key, messages in known.items() if work.cores(messages) > PLANNED)),
        unknown=len(rates) - len(known),
    )
