"""The consumer of a task: any number of partitions, each read from where it is put, outside of any consumer group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.kafka_login import Login

Key = tuple[str, int]
"""Topic and partition."""
END = KafkaError._PARTITION_EOF
GAPS = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
"""The log does not hold the position, or was cut below it: the driver finds out which and decides."""
GONE = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
REFUSED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION}


def settings(cluster: KafkaCluster, name: str, prefetch_bytes: int) -> dict[str, Any]:
    """librdkafka settings; at most about `prefetch_bytes` wait in its memory."""
    return {
        **cluster.client_config(),
        "group.id": name,  # in ACLs and quotas only: nothing is committed here
        "client.id": name,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "queued.max.messages.kbytes": max(1024, prefetch_bytes >> 10),
        "queued.min.messages": 1_000_000,  # the bytes decide alone
        "fetch.message.max.bytes": 1 << 20,
        "fetch.wait.max.ms": 100,
        "fetch.queue.backoff.ms": 5,
        "topic.metadata.refresh.interval.ms": 5_000,
        "topic.metadata.propagation.max.ms": 5_000,
        "log_level": 0,
    }


class Source:
    """Not thread-safe."""

    def __init__(self, cluster: KafkaCluster, name: str, prefetch_bytes: int) -> None:
        self._consumer = Consumer(settings(cluster, name, prefetch_bytes))
        self._login = Login(cluster)

    def add(self, places: Iterable[tuple[Key, int, int]]) -> None:
        """Read these from the offset on; by its leader epoch, -1 if unknown, a log that was cut is noticed."""
        self._consumer.incremental_assign([_at(key, offset, epoch) for key, offset, epoch in places])

    def remove(self, keys: Iterable[Key]) -> None:
        self._consumer.incremental_unassign([TopicPartition(*key) for key in keys])

    def pause(self, keys: Iterable[Key]) -> None:
        self._consumer.pause([TopicPartition(*key) for key in keys])

    def resume(self, keys: Iterable[Key]) -> None:
        self._consumer.resume([TopicPartition(*key) for key in keys])

    def read(self, most: int, seconds: float) -> list[Any]:
        """Messages and events of partitions (`confluent_kafka.Message`), at most so many, waiting at most so long."""
        self._login.refresh(self._consumer)
        return self._consumer.consume(most, seconds)

    def end(self, key: Key) -> int:
        """The log end as the client learned it with what it fetched last; -1 when it knows none."""
        _, end = self._consumer.get_watermark_offsets(TopicPartition(*key), cached=True)
        return int(end) if end is not None and end >= 0 else -1

    def close(self) -> None:
        self._consumer.close()


def _at(key: Key, offset: int, epoch: int) -> TopicPartition:
    return TopicPartition(*key, offset, leader_epoch=epoch) if epoch >= 0 else TopicPartition(*key, offset)
