"""The producer of a task. It keeps the order of each partition and never lets a record expire.

A record that expired unsent would leave a gap behind records that were sent (G1). So nothing expires here: a task that
must end ends as a process, and any report of a failure ends the producer with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.kafka_login import Login

Delivered = Callable[[KafkaError | None, Any], None]
"""Called with the error, if there is one, and the `confluent_kafka.Message`."""
Content = tuple[bytes | None, bytes | None, int, list[tuple[str, Any]]]
"""Value, key, timestamp in milliseconds and headers of a record."""
CONSEQUENCES = {KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
"""Errors of records that only share a producer with the one that was refused."""
LINGER_MS = 5
REPORT_SECONDS = 2.0
"""How long after the end of a producer what became of its records may still be reported."""
FULL_WAIT = 0.05


class NotSent(Exception):
    """The client refused a record, or can send nothing any more. Those before it, `sent` many, were handed to it."""

    def __init__(self, sent: int, cause: KafkaError) -> None:
        super().__init__(cause.str())
        self.sent = sent
        self.cause = cause


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
        self._login = Login(cluster)
        self.broken = ""
        """Why nothing can be sent any more; empty while it can."""

    def send(self, topic: str, partition: int, records: Sequence[Content], delivered: Delivered) -> None:
        """Sends them in order and waits while the client's queue is full. `delivered` reports the last one, which
        answers for all. Raises NotSent."""
        produce, last = self._produce, len(records) - 1
        for number, (value, key, timestamp_ms, headers) in enumerate(records):
            reported = delivered if number == last else None
            while True:
                try:
                    # Arguments by position: by name, a call takes a third longer.
                    produce(topic, value, key, partition, reported, None, timestamp_ms, headers)
                    break
                except BufferError:
                    self.poll(FULL_WAIT)
                except KafkaException as error:
                    raise NotSent(number, error.args[0]) from error

    def poll(self, seconds: float) -> None:
        self._login.refresh(self._producer)
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
