"""Reads the end of target partitions: which records of which source a former task wrote behind its last position."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse_mirror.protocol import provenance
from blockhouse_mirror.protocol.provenance import Origin
from blockhouse_mirror.work.source import END, Key, settings

PREFETCH = 8 << 20


@dataclass(slots=True)
class Tail:
    """`origins` in the order of the target's offsets; `end` is the target offset behind the last record."""

    end: int
    origins: list[Origin] = field(default_factory=list)


def read_tails(cluster: KafkaCluster, name: str, begins: Mapping[Key, int], seconds: float) -> dict[Key, Tail]:
    """The tail of each target partition from the given offset to its end. Raises Retryable when a broker does not
    answer within so many seconds, or a log does not reach back to where its tail begins."""
    tails = {key: Tail(begin) for key, begin in begins.items()}
    if not tails:
        return tails
    consumer = Consumer({**settings(cluster, name, PREFETCH), "isolation.level": "read_uncommitted"})
    open_ends, deadline = set(tails), time.monotonic() + seconds
    try:
        consumer.assign([TopicPartition(*key, begin) for key, begin in begins.items()])
        while open_ends:
            if time.monotonic() > deadline:
                some = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(open_ends)[:3])
                raise Retryable(f"the end of {some} of the target could not be read within {seconds:g} s", after=1.0)
            message: Any
            for message in consumer.consume(1000, 0.1):
                key = (message.topic(), message.partition())
                error = message.error()
                if error is None:
                    tails[key].end = message.offset() + 1
                    if (origin := provenance.newest(message.headers() or ())) is not None:
                        tails[key].origins.append(origin)
                elif error.code() == END:
                    tails[key].end = max(tails[key].end, message.offset())
                    open_ends.discard(key)
                elif key in tails:
                    raise Retryable(f"the end of {key[0]}/{key[1]} of the target cannot be read: {error}", after=1.0)
    finally:
        consumer.close()
    return tails
