"""Reads one partition of either cluster into offsets and digests."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse_mirror.audit.compare import Records
from blockhouse_mirror.protocol import provenance
from blockhouse_mirror.work.source import END, Key, settings

PREFETCH = 32 << 20
SILENCE = 30.0
"""Seconds without anything after which a partition counts as unreadable."""
OffsetOf = Callable[[Any], int | None]
"""The source offset of a record, None for one that is not judged."""


def digest(message: Any) -> bytes:
    """Eight bytes of what a producer wrote: key, value, headers but those of mirrors, and its timestamp, which a broker
    that keeps its own (LogAppendTime) does not keep."""
    hashed = hashlib.blake2b(digest_size=8)
    parts: list[bytes | None] = [message.key(), message.value()]
    for name, value in provenance.without(message.headers() or ()):
        parts += [name.encode(), value]
    kind, moment = message.timestamp()
    if kind == TIMESTAMP_CREATE_TIME:
        parts.append(str(moment).encode())
    for part in parts:
        hashed.update(b"-" if part is None else b"%d:" % len(part) + part)
    return hashed.digest()


def read(cluster: KafkaCluster, key: Key, end: int, offset_of: OffsetOf) -> Records:
    """All records of the partition below offset `end`. Raises Retryable when it cannot be read."""
    if end <= 0:
        return Records(np.empty(0, np.int64), np.empty(0, np.uint64))
    consumer = Consumer({**settings(cluster, "blockhouse-mirror-audit", PREFETCH), "auto.offset.reset": "earliest"})
    offsets: list[int] = []
    digests: list[bytes] = []
    try:
        consumer.assign([TopicPartition(*key, 0)])
        heard, over = time.monotonic(), False
        while not over:
            message: Any
            for message in consumer.consume(2000, 0.5):
                heard, error = time.monotonic(), message.error()
                if error is not None:
                    if error.code() == END:
                        over = True
                    continue
                if message.offset() >= end:
                    over = True
                    break
                offset = offset_of(message)
                if offset is not None:
                    offsets.append(offset)
                    digests.append(digest(message))
            if time.monotonic() - heard > SILENCE:
                raise Retryable(f"{key[0]}/{key[1]} of cluster {cluster.name} cannot be read: {SILENCE:g} s of silence")
    finally:
        consumer.close()
    return Records(np.array(offsets, np.int64), np.frombuffer(b"".join(digests), np.uint64))
