"""The history of load as records of a compacted topic on the target, for the next driver to begin with."""

from __future__ import annotations

import time
from collections.abc import Iterable

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.kafka_errors import translate
from blockhouse.kafka_login import Login
from blockhouse.load.columns import Column, LaterVersion, decode, encode

log = structlog.get_logger(__name__)
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20), "min.cleanable.dirty.ratio": "0.2"}
"""Compaction begins at a fifth of new records, and takes what is in closed segments of 16 MiB."""
SECONDS = 20.0
"""Within which all is read, or written."""


class LoadTopic:
    """Blocking; used by one thread at a time."""

    def __init__(self, cluster: KafkaCluster, topic: str, replication: int) -> None:
        self._cluster, self._topic, self._replication = cluster, topic, replication
        self._producer: Producer | None = None
        self._login = Login(cluster)

    def read(self) -> list[Column]:
        """What is there; the topic is created if it is missing. Records of others are ignored, those of a later version
        with a warning. Raises Retryable or Permanent."""
        with KafkaFleet(self._cluster) as fleet:
            fleet.create_topic(self._topic, 1, self._replication, SETTINGS)
        consumer = Consumer(self._settings() | {"group.id": f"blockhouse-{self._topic}", "enable.partition.eof": True})
        found: list[Column] = []
        later, deadline = "", time.monotonic() + SECONDS
        try:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            while time.monotonic() < deadline:
                for message in consumer.consume(1000, 0.2):
                    if (error := message.error()) is not None:
                        if error.code() == KafkaError._PARTITION_EOF:
                            if later:
                                log.warning("mirror.load_history_left_out", topic=self._topic, why=later)
                            return found
                        continue
                    try:
                        column = decode(message.value())
                    except LaterVersion as version:
                        later = str(version)
                        continue
                    if column is not None:
                        found.append(column)
        finally:
            consumer.close()
        raise Retryable(f"topic {self._topic} of cluster {self._cluster.name} cannot be read within {SECONDS:g} s")

    def write(self, columns: Iterable[Column]) -> None:
        """Returns when all are acknowledged. Raises Retryable or Permanent; all may be written again."""
        producer = self._producer
        if producer is None:
            producer = self._producer = Producer(
                self._settings()
                | {"acks": "all", "compression.type": "zstd", "message.timeout.ms": int(SECONDS * 1000)}
            )
        self._login.refresh(producer)
        failures: list[KafkaException] = []
        for column in columns:
            for key, value in encode(column):
                producer.produce(
                    self._topic, value, key, partition=0,
                    on_delivery=lambda error, _: failures.append(KafkaException(error)) if error else None,
                )  # fmt: skip
        left = producer.flush(SECONDS + 1)
        if failures:
            raise translate(failures[0], f"writing the history of load to {self._topic}")
        if left:
            raise Retryable(f"topic {self._topic} of cluster {self._cluster.name} did not take the history of load")

    def _settings(self) -> dict[str, str | int | float | bool]:
        return {**self._cluster.client_config(), "client.id": "blockhouse-load", "log_level": 0}
