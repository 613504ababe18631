"""The compacted topic in which a verifier remembers, one in each cluster and about that cluster only.

So a cluster that is lost takes nothing with it but its own memory. Must never be written by two verifiers at once:
the later one would mix two views.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse.kafka_login import Login
from blockhouse_aggregator.verifier.offsets.reader import settings, unreachable

_SECONDS = 15.0


class CheckpointTopic:
    """`load` once, then `save` any number of times. Errors are Retryable."""

    def __init__(self, cluster: KafkaCluster, topic: str, replication_factor: int) -> None:
        self._config = cluster
        self._cluster, self._topic, self._replication = cluster.name, topic, replication_factor
        self._producer: Producer | None = None
        self._login = Login(cluster)

    def load(self) -> list[tuple[str, bytes]]:
        """The last value of every key, in the order in which they were written; creates the topic when it is absent."""
        self._create()
        consumer = Consumer(settings(self._config, "verifier-memory"))
        try:
            return self._read(consumer)
        except KafkaException as error:
            raise unreachable(self._cluster, f"reading the checkpoint topic {self._topic}", error) from error
        finally:
            consumer.close()

    def save(self, items: Iterable[tuple[str, bytes | None]]) -> None:
        """Write the items in order, acknowledged. Raises Retryable when one was not taken: write them again."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error)

        producer = self._opened()
        try:
            for key, value in items:
                while True:
                    try:
                        producer.produce(self._topic, key=key.encode(), value=value, on_delivery=delivered)
                        break
                    except BufferError:
                        producer.poll(0.5)
            left = producer.flush(_SECONDS)
        except KafkaException as error:
            raise unreachable(self._cluster, f"writing to the checkpoint topic {self._topic}", error) from error
        if left or failures:
            producer.purge()
            producer.flush(1.0)
            self._producer = None  # an idempotent producer that failed is of no more use
            why = failures[0].str() if failures else f"{left} records were not acknowledged in {_SECONDS:g} s"
            raise Retryable(f"Kafka cluster {self._cluster}: checkpoint topic {self._topic}: {why}", after=2.0)

    def _opened(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(
                {
                    **self._config.client_config(),
                    "client.id": "blockhouse-verifier",
                    "enable.idempotence": True,
                    "linger.ms": 20,
                    "compression.type": "lz4",
                    "message.timeout.ms": int(_SECONDS * 1000),
                    "log_level": 0,
                }
            )
        self._login.refresh(self._producer)
        return self._producer

    def _create(self) -> None:
        admin = AdminClient({**self._config.client_config(), "client.id": "blockhouse-verifier", "log_level": 0})
        config = {"cleanup.policy": "compact", "segment.ms": "3600000"}
        topic = NewTopic(self._topic, num_partitions=1, replication_factor=self._replication, config=config)
        try:
            if self._topic not in admin.list_topics(timeout=_SECONDS).topics:
                admin.create_topics([topic], operation_timeout=10)[self._topic].result(_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise unreachable(self._cluster, f"creating the checkpoint topic {self._topic}", error) from error

    def _read(self, consumer: Consumer) -> list[tuple[str, bytes]]:
        partition = TopicPartition(self._topic, 0, OFFSET_BEGINNING)
        _, end = consumer.get_watermark_offsets(partition, timeout=_SECONDS)
        consumer.assign([partition])
        found: dict[str, bytes] = {}
        while end > 0:
            message = consumer.poll(_SECONDS)
            if message is None:
                raise Retryable(f"Kafka cluster {self._cluster}: {self._topic} was not read to its end", after=2.0)
            error, offset = message.error(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if error is not None:
                break
            key, value = (message.key() or b"").decode(errors="replace"), message.value()
            found.pop(key, None)
            if value is not None:
                found[key] = value
            if offset is not None and offset + 1 >= end:
                break
        return list(found.items())
