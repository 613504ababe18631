"""The binary records of Cruise Control's two topics, and the rates they hold.

Pure. Records are decoded one by one: an unknown or damaged one is counted and costs only itself. A rate of a partition
is always an estimate: Cruise Control divides a topic's rate on a broker by the number of leaders there.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from blockhouse.load.model import BrokerLoad, PartitionLoad, Quality
from blockhouse.placement.model import TopicPartition

BROKER, TOPIC, PARTITION = 0, 1, 2
BROKER_IN, BROKER_OUT, TOPIC_IN, TOPIC_OUT, SIZE, COPIED_IN, COPIED_OUT, TOPIC_MESSAGES = 0, 1, 2, 3, 4, 6, 7, 15
_METRIC = struct.Struct(">bbbqi")  # class, version, type, milliseconds, broker
_INT, _DOUBLE = struct.Struct(">i"), struct.Struct(">d")
_V0 = struct.Struct(">bi4dqi")  # version, broker, cpu, disk, bytes in, bytes out, milliseconds, partition
_V1 = struct.Struct(">bi9dqi")  # the same with produce and fetch rate, messages in, replication in and out
KB = 1024.0


class Undecodable(ValueError):
    """A record that is none of the known formats."""


@dataclass(frozen=True, slots=True)
class RawMetric:
    """One figure of a broker, of a topic on it, or of a partition on it. `at` is in seconds since the epoch."""

    type: int
    at: float
    broker: int
    topic: str | None
    partition: int | None
    value: float


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """What Cruise Control stored of a partition: bytes/s and messages/s (None in the older version)."""

    key: TopicPartition
    at: float
    bytes: float
    messages: float | None


def decode_metric(record: bytes) -> RawMetric:
    """One value of `__CruiseControlMetrics`. Raises Undecodable."""
    try:
        kind, version, type, at, broker = _METRIC.unpack_from(record)
        if version != 0 or kind not in (BROKER, TOPIC, PARTITION):
            raise Undecodable(f"class {kind}, version {version}")
        offset, topic, partition = _METRIC.size, None, None
        if kind in (TOPIC, PARTITION):
            (length,) = _INT.unpack_from(record, offset)
            offset += _INT.size
            if length < 0 or offset + length > len(record):
                raise Undecodable(f"a topic of {length} bytes")
            topic = record[offset : offset + length].decode()
            offset += length
        if kind == PARTITION:
            (partition,) = _INT.unpack_from(record, offset)
            offset += _INT.size
        (value,) = _DOUBLE.unpack_from(record, offset)
    except (struct.error, UnicodeDecodeError) as error:
        raise Undecodable(str(error)) from None
    return RawMetric(type, at / 1000, broker, topic, partition, value)


def decode_partition_sample(record: bytes) -> PartitionSample:
    """One value of `__KafkaCruiseControlPartitionMetricSamples`, version 0 or 1. Raises Undecodable."""
    if not record or record[0] not in (0, 1):
        raise Undecodable(f"version {record[0] if record else 'missing'}")
    layout = (_V0, _V1)[record[0]]
    try:
        fields = layout.unpack_from(record)
        topic = record[layout.size :].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise Undecodable(str(error)) from None
    if not topic:
        raise Undecodable("no topic")
    bytes_in, at, partition = fields[4], fields[-2], fields[-1]
    messages = fields[8] if layout is _V1 else None
    return PartitionSample(TopicPartition(topic, partition), at / 1000, bytes_in * KB, messages)


class TopicNames:
    """Topics of the cluster by the names Cruise Control gives them: its reporter writes dots as underscores."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._exact = set(topics)
        self._underscored: dict[str, list[str]] = defaultdict(list)
        for topic in sorted(self._exact):
            self._underscored[topic.replace(".", "_")].append(topic)

    def find(self, name: str) -> str | None:
        """The topic meant; None when there is none, or more than one could be meant."""
        meant = self._underscored.get(name, [])
        if len(meant) == 1:
            return meant[0]
        return name if name in self._exact and not meant else None

    def is_ambiguous(self, name: str) -> bool:
        """Whether several topics have this name once dots are underscores, as in its metrics."""
        return len(self._underscored.get(name, ())) > 1


def partition_loads(
    metrics: Iterable[RawMetric], leaders: Mapping[TopicPartition, int], names: TopicNames
) -> dict[TopicPartition, PartitionLoad]:
    """Rates of partitions as Cruise Control reckons them: the topic's on the leader, by the leaders there."""
    led: dict[tuple[str, int], list[TopicPartition]] = defaultdict(list)
    for key, broker in leaders.items():
        led[key.topic, broker].append(key)
    newest = _newest(metrics)
    loads: dict[TopicPartition, PartitionLoad] = {}
    for (type, broker, name), metric in newest.items():
        topic = names.find(name) if type == TOPIC_IN and name is not None else None
        keys = led.get((topic, broker), []) if topic is not None else []
        messages = newest.get((TOPIC_MESSAGES, broker, name))
        for key in keys:
            records = messages.value / len(keys) if messages else None
            loads[key] = PartitionLoad(metric.value / len(keys), records, Quality.ESTIMATED)
    return loads


def broker_loads(metrics: Iterable[RawMetric]) -> dict[int, BrokerLoad]:
    """Traffic of brokers: clients' and replication; what a reassignment moves is not distinguished."""
    newest = {(type, broker): metric.value for (type, broker, name), metric in _newest(metrics).items() if name is None}
    loads: dict[int, BrokerLoad] = {}
    for broker in sorted({broker for _, broker in newest}):
        rx, tx = newest.get((BROKER_IN, broker)), newest.get((BROKER_OUT, broker))
        if rx is not None or tx is not None:
            loads[broker] = BrokerLoad(
                tx=None if tx is None else tx + newest.get((COPIED_OUT, broker), 0.0),
                rx=None if rx is None else rx + newest.get((COPIED_IN, broker), 0.0),
            )
    return loads


def _newest(metrics: Iterable[RawMetric]) -> dict[tuple[int, int, str | None], RawMetric]:
    found: dict[tuple[int, int, str | None], RawMetric] = {}
    for metric in metrics:
        key = metric.type, metric.broker, metric.topic
        if metric.partition is None and (key not in found or metric.at >= found[key].at):
            found[key] = metric
    return found
