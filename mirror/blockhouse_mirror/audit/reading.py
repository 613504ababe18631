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
from blockhouse_mirror.audit.compare import BROKERS_TIME, Records
from blockhouse_mirror.protocol import provenance
from blockhouse_mirror.work.source import END, Key, settings

PREFETCH = 32 << 20
SILENCE = 30.0
"""Seconds without anything after which a partition counts as unreadable."""
OffsetOf = Callable[[Any], int | None]
"""The source offset of a record, None for one that is not judged."""


def digest(message: Any) -> bytes:
    """Eight bytes of what a producer wrote: key, value, and headers but those of mirrors."""
    hashed = hashlib.blake2b(digest_size=8)
    parts: list[bytes | None] = [message.key(), message.value()]
    for name, value in provenance.without(message.headers() or ()):
        parts += [name.encode(), value]
    for part in parts:
        hashed.update(b"-" if part is None else b"%d:" % len(part) + part)
    return hashed.digest()


def moment(message: Any, *, kept: bool) -> int:
    """Its timestamp in milliseconds; BROKERS_TIME for one that the broker set, unless that is what a mirror `kept`."""
    kind, milliseconds = message.timestamp()
    return int(milliseconds) if kept or kind == TIMESTAMP_CREATE_TIME else BROKERS_TIME


class _Columns:
    """Records, growing."""

    def __init__(self, *, times_kept: bool) -> None:
        self._times_kept = times_kept
        self._offsets: list[int] = []
        self._digests: list[bytes] = []
        self._moments: list[int] = []
        self._keys: list[int] = []
        self._fleeting: list[bool] = []

    def add(self, offset: int, message: Any) -> None:
        key = message.key()
        self._offsets.append(offset)
        self._digests.append(digest(message))
        self._moments.append(moment(message, kept=self._times_kept))
        self._keys.append(hash(key))
        self._fleeting.append(key is None or message.value() is None)

    def records(self) -> Records:
        return Records(
            np.array(self._offsets, np.int64),
            np.frombuffer(b"".join(self._digests), np.uint64),
            np.array(self._moments, np.int64),
            np.array(self._keys, np.int64),
            np.array(self._fleeting, np.bool_),
        )


def read(cluster: KafkaCluster, key: Key, end: int, offset_of: OffsetOf, *, times_kept: bool) -> Records:
    """All records of the partition below offset `end`, with the timestamps of brokers if `times_kept`: what a mirror
    reads it passes on. Raises Retryable when it cannot be read."""
    found = _Columns(times_kept=times_kept)
    if end <= 0:
        return found.records()
    consumer = Consumer({**settings(cluster, "blockhouse-mirror-audit", PREFETCH), "auto.offset.reset": "earliest"})
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
                    found.add(offset, message)
            if time.monotonic() - heard > SILENCE:
                raise Retryable(f"{key[0]}/{key[1]} of cluster {cluster.name} cannot be read: {SILENCE:g} s of silence")
    finally:
        consumer.close()
    return found.records()
