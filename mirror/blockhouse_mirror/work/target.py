"""The producer of a task. It keeps the order of each partition and never lets a record expire.

A record that expired unsent would leave a gap behind records that were sent (G1). So nothing expires here: a task that
must end ends as a process, and any report of a failure ends the producer with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from blockhouse.config.endpoints import KafkaCluster

Delivered = Callable[[KafkaError | None, Any], None]
"""Called with the error, if there is one, and the `confluent_kafka.Message`."""
CONSEQUENCES = {KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
"""Errors of records that only share a producer with the one that was refused."""
LINGER_MS = 5
REPORT_SECONDS = 2.0
"""How long after the end of a producer what became of its records may still be reported."""
FULL_WAIT = 0.05


def settings(cluster: KafkaCluster, name: str, queue_bytes: int, compression: str, linger_ms: int) -> dict[str, Any]:
    """librdkafka settings; `queue_bytes` is the most that may wait to be sent."""
    return {
        **cluster.client_config(),
        "client.id": name,
        "acks": "all",
        "enable.idempotence": True,
        "enable.gapless.guarantee": True,  # nothing is sent behind a record that was refused
        "message.timeout.ms": 0,
        "linger.ms": linger_ms,
        "batch.size": 1_000_000,
        "compression.type": compression,
        # The broker decides: its own limit is of compressed batches, this one of a single record as it is.
        "message.max.bytes": 1_000_000_000,
        "queue.buffering.max.kbytes": max(1024, queue_bytes >> 10),
        "queue.buffering.max.messages": 10_000_000,
        "allow.auto.create.topics": False,
        "log_level": 0,
    }


class Target:
    """Not thread-safe; `poll` calls the callbacks of what was delivered, on the caller's thread."""

    def __init__(
        self, cluster: KafkaCluster, name: str, queue_bytes: int, compression: str, linger_ms: int = LINGER_MS
    ) -> None:
        self._producer = Producer(settings(cluster, name, queue_bytes, compression, linger_ms))
        self._produce = self._producer.produce
        self.broken = ""
        """Why nothing can be sent any more; empty while it can."""

    def send(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: list[tuple[str, Any]],
        delivered: Delivered | None,
    ) -> None:
        """Raises KafkaException for what the client itself refuses, and when it is broken. Waits while its queue is
        full. Without `delivered` the record is answered for by the next one of its partition that has it."""
        while True:
            try:
                self._produce(
                    topic, value, key, partition, timestamp=timestamp_ms, headers=headers, on_delivery=delivered
                )
                return
            except BufferError:
                self.poll(FULL_WAIT)

    def poll(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds)
        except KafkaException as error:
            self.end(error.args[0].str())
            self._producer.poll(0)  # what it reports of each record comes behind that

    def end(self, why: str) -> None:
        """Nothing can be sent any more."""
        self.broken = self.broken or why

    def learn(self, topic: str, seconds: float) -> None:
        """Learn which partitions the topic has now. Raises KafkaException."""
        self._producer.list_topics(topic, timeout=seconds)

    def purge(self) -> None:
        """Forget what was not sent yet; what is on the wire cannot be called back."""
        with contextlib.suppress(KafkaException):
            self._producer.purge(in_queue=True, in_flight=False, blocking=False)
