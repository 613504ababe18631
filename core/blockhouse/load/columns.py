"""What a history of load keeps of one span of time, as bytes that another process reads back. Pure.

A ring: a span has the key of the one that it replaces, so that a compacted log holds what a history holds and no more:
24 records of five minutes and 168 of an hour, each in parts of at most CHUNK partitions. 10,000 partitions are 40 kB
and 80 kB a record, 14.4 MB in all; the names of their topics come on top.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from blockhouse.load.figures import Codes
from blockhouse.placement.model import TopicPartition

CHUNK = 20_000
"""Partitions of one record at most: 250 kB with the names of topics of ten partitions."""
RING = {300: 24, 3600: 168}
"""Spans kept of each length in seconds."""
WIDTH = {300: 2, 3600: 4}
"""Figures of a partition: bytes, messages; of an hour mean, p95, maximum, and the mean of messages."""
_MAGIC, _VERSION = b"bhload", 1
_HEAD = struct.Struct("<6sBIqdHI")  # magic, version, span, slot, moment, length of the cluster id, topics
_TOPIC = struct.Struct("<HI")  # length of the name, runs
_RUN = struct.Struct("<iI")  # first partition, how many


class LaterVersion(Exception):
    """A record that only a later version can read."""


@dataclass(frozen=True, slots=True)
class Column:
    """The figures of one span of `span` seconds, which began at `slot` x `span` since the epoch, of cluster `cluster`.
    `at` is the moment of the newest sample in it. `codes` has a row for each of `keys` and is of shape (n, WIDTH)."""

    cluster: str
    span: int
    slot: int
    at: float
    keys: tuple[TopicPartition, ...]
    codes: Codes


def encode(column: Column) -> Iterator[tuple[bytes, bytes]]:
    """The column as records: keys and values."""
    order = sorted(range(len(column.keys)), key=column.keys.__getitem__)
    for number, begin in enumerate(range(0, max(len(order), 1), CHUNK)):
        chosen = order[begin : begin + CHUNK]
        keys = [column.keys[index] for index in chosen]
        codes = np.ascontiguousarray(column.codes[chosen], "<u2").tobytes()
        key = f"{column.span}/{column.slot % RING[column.span]}/{number}".encode()
        yield key, _head(column, keys) + codes


def decode(value: bytes | None) -> Column | None:
    """None for what no history wrote. Raises LaterVersion."""
    if value is None or not value.startswith(_MAGIC) or len(value) < _HEAD.size:
        return None
    if value[len(_MAGIC)] != _VERSION:
        raise LaterVersion(f"a record of load of version {value[len(_MAGIC)]}; this one reads {_VERSION}")
    try:
        return _decoded(value)
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


def _head(column: Column, keys: list[TopicPartition]) -> bytes:
    topics: dict[str, list[list[int]]] = {}
    for key in keys:
        runs = topics.setdefault(key.topic, [])
        if runs and sum(runs[-1]) == key.partition:
            runs[-1][1] += 1
        else:
            runs.append([key.partition, 1])
    cluster = column.cluster.encode()
    fields = _MAGIC, _VERSION, column.span, column.slot, column.at, len(cluster), len(topics)
    parts = [_HEAD.pack(*fields), cluster]
    for topic, runs in topics.items():
        name = topic.encode()
        parts += [_TOPIC.pack(len(name), len(runs)), name, *(_RUN.pack(*run) for run in runs)]
    return b"".join(parts)


def _decoded(value: bytes) -> Column | None:
    _, _, span, slot, at, length, topics = _HEAD.unpack_from(value)
    if span not in RING:
        return None
    place = _HEAD.size + length
    cluster = value[_HEAD.size : place].decode()
    keys: list[TopicPartition] = []
    for _ in range(topics):
        size, runs = _TOPIC.unpack_from(value, place)
        place += _TOPIC.size
        topic, place = value[place : place + size].decode(), place + size
        for _ in range(runs):
            first, count = _RUN.unpack_from(value, place)
            place += _RUN.size
            if count > CHUNK:
                raise ValueError(count)
            keys += [TopicPartition(topic, first + number) for number in range(count)]
    codes = np.frombuffer(value, "<u2", offset=place).astype(np.uint16)
    return Column(cluster, span, slot, at, tuple(keys), codes.reshape(len(keys), WIDTH[span]))
