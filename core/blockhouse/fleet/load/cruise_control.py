"""Load from the topics that Cruise Control keeps: its partition samples, or the raw metrics of its reporter.

It reads by offsets alone: no group, no commit. It must never wait for records that may not come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.load.cluster import ClusterNames, Named, some_names
from blockhouse.fleet.load.settings import CruiseControlSettings
from blockhouse.load.cruise_control import (
    PartitionSample,
    RawMetric,
    TopicNames,
    Undecodable,
    broker_loads,
    decode_metric,
    decode_partition_sample,
    partition_loads,
)
from blockhouse.load.model import PartitionLoad, Problem, ProblemKind, Quality, Sample
from blockhouse.placement.model import TopicPartition as Key

RAW_TOPIC = "__CruiseControlMetrics"
TIMEOUT = 10.0  # seconds for each request
IDLE, BATCH = 3.0, 10_000
"""Seconds without a record after which no more are waited for, and records asked for at once."""
PERIOD = 120.0  # seconds between two of Cruise Control's samples, as it is shipped


class CruiseControlSource:
    """A `LoadSource`."""

    name = "cruiseControl"

    def __init__(self, settings: CruiseControlSettings, kafka: KafkaCluster, cluster: Named) -> None:
        self._settings, self._kafka, self._cluster = settings, kafka, cluster

    def sample(self) -> Sample:
        """Raises Retryable when the topic cannot be read or has nothing that is young enough."""
        names, now = self._cluster.names(), time.time()
        values = self._read(now - self._settings.lookback)
        problems: list[Problem] = []
        if self._is_raw():
            metrics = [found for found in self._decoded(decode_metric, values, problems) if self._is_young(found, now)]
            self._demand(metrics)
            return self._of_metrics(metrics, names, problems)
        samples = self._decoded(decode_partition_sample, values, problems)
        young = [found for found in samples if self._is_young(found, now)]
        self._demand(young)
        return self._of_samples(young, names, problems)

    def _is_raw(self) -> bool:
        chosen = self._settings.format
        return chosen == "metrics" or (chosen is None and self._settings.topic == RAW_TOPIC)

    def _is_young(self, found: RawMetric | PartitionSample, now: float) -> bool:
        return found.at >= now - self._settings.lookback

    def _demand(self, found: list[Any]) -> None:
        if not found:
            raise Retryable(
                f"topic {self._settings.topic} has no record of the last {self._settings.lookback:.0f} s: Cruise "
                "Control does not run, or pauses its sampling during a rebalance",
                after=PERIOD / 4,
            )

    def _decoded(self, decode: Callable[[bytes], Any], values: Iterable[bytes], problems: list[Problem]) -> list[Any]:
        found, refused = [], []
        for value in values:
            try:
                found.append(decode(value))
            except Undecodable as error:
                refused.append(str(error))
        if refused:
            text = f"{len(refused)} records are in no known format and left out, the first: {refused[0]}"
            problems.append(Problem(ProblemKind.UNKNOWN, f"topic {self._settings.topic}", text))
        return found

    def _of_metrics(self, metrics: list[RawMetric], names: ClusterNames, problems: list[Problem]) -> Sample:
        topics = TopicNames(names.counts)
        partitions = partition_loads(metrics, names.leaders, topics)
        given = {metric.topic for metric in metrics if metric.topic is not None}
        self._report(problems, partitions, names, {name for name in given if topics.find(name) is None})
        return Sample(
            cluster_id=names.cluster_id,
            source=self.name,
            at=max(metric.at for metric in metrics),
            window=PERIOD,
            partitions=partitions,
            brokers=broker_loads(metrics),
            problems=tuple(problems),
        )

    def _of_samples(self, samples: list[PartitionSample], names: ClusterNames, problems: list[Problem]) -> Sample:
        newest: dict[Key, PartitionSample] = {}
        for found in samples:
            if found.key not in newest or found.at >= newest[found.key].at:
                newest[found.key] = found
        partitions = {
            key: PartitionLoad(found.bytes, found.messages, Quality.ESTIMATED)
            for key, found in newest.items()
            if key in names.leaders
        }
        self._report(problems, partitions, names, {key.topic for key in newest if key not in names.leaders})
        return Sample(
            cluster_id=names.cluster_id,
            source=self.name,
            at=min((newest[key].at for key in partitions), default=max(found.at for found in samples)),
            window=PERIOD,
            partitions=partitions,
            problems=tuple(problems),
        )

    def _report(
        self, problems: list[Problem], partitions: Iterable[Key], names: ClusterNames, strangers: Iterable[str]
    ) -> None:
        """Name what Cruise Control does not report, beside the names that it has and the cluster has not."""
        missing = sorted({str(key.topic) for key in names.leaders.keys() - set(partitions)})
        others = f"; it has names that the cluster does not, or two could be meant: {some_names(strangers)}"
        hint = others if strangers else ""
        if missing:
            text = f"Cruise Control has no rate of partitions of {len(missing)} topics ({some_names(missing)}){hint}"
            problems.append(Problem(ProblemKind.UNKNOWN, "topics", text))

    def _read(self, since: float) -> list[bytes]:
        """The values of all records written since then (seconds since the epoch)."""
        settings = self._kafka.client_config() | {
            "group.id": "blockhouse-load",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        consumer = Consumer(settings)
        try:
            return self._read_with(consumer, int(since * 1000))
        except KafkaException as error:
            words = error.args[0].str()
            raise Retryable(
                f"topic {self._settings.topic} of Kafka cluster {self._kafka.name} cannot be read: {words}", after=5.0
            ) from error
        finally:
            consumer.close()

    def _read_with(self, consumer: Any, since: int) -> list[bytes]:
        topic = self._settings.topic
        found = consumer.list_topics(topic, timeout=TIMEOUT).topics[topic]
        if found.error is not None or not found.partitions:
            why = f" ({found.error.str()})" if found.error is not None else ""
            raise Permanent(
                f"Kafka cluster {self._kafka.name} has no topic {topic}{why}: is Cruise Control's reporter installed? "
                "Name its topic in cruiseControl.topic",
                reason="TopicMissing",
            )
        begins = consumer.offsets_for_times([TopicPartition(topic, n, since) for n in found.partitions], TIMEOUT)
        ends = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), TIMEOUT)[1] for n in found.partitions}
        begins = [begin for begin in begins if 0 <= begin.offset < ends[begin.partition]]
        consumer.assign(begins)
        return _values(consumer, {begin.partition: (begin.offset, ends[begin.partition]) for begin in begins})


def _values(consumer: Any, left: dict[int, tuple[int, int]]) -> list[bytes]:
    """Values up to the ends in `left`, which are (next offset, end) by partition.

    Ends as soon as none comes for a while: what is missing then are control records, or retention took it.
    """
    values: list[bytes] = []
    while left:
        missing = sum(end - offset for offset, end in left.values())
        messages = consumer.consume(min(missing, BATCH), timeout=IDLE)
        if not messages:
            break
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
            if message.value() is not None:
                values.append(message.value())
            _, end = left.get(message.partition(), (0, 0))
            left[message.partition()] = message.offset() + 1, end
        left = {partition: (offset, end) for partition, (offset, end) in left.items() if offset < end}
    return values
