"""The loop that people write first: consume from one cluster, produce to the other one, flush and commit each second.

    python -m bench.mirrors.loop SOURCE TARGET TOPIC KIND

KIND `whole` keeps keys, headers and timestamps, writes as safely as a mirror does (acks=all, idempotence) and reads
each report; `bare` sends values alone and reads none. Both read and write with the settings of a mirror's clients
and keep the partition. At least once: what was sent since the last commit is sent again after a crash. Runs until it is
killed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.mirrors.field import PARTITIONS
from blockhouse.config.endpoints import KafkaCluster
from blockhouse_mirror.work import source, target

BATCH, WAIT, COMMIT = 1000, 0.02, 1.0
MEMORY = 64 << 20
"""Bytes prefetched, as a mirror's task does by default, and half of what may wait to be sent."""
BARE = {"acks": 1, "enable.idempotence": False, "enable.gapless.guarantee": False}


def main() -> None:
    source_address, target_address, topic, kind = sys.argv[1:]
    reading = KafkaCluster(name="a", bootstrap_servers=source_address)
    writing = KafkaCluster(name="b", bootstrap_servers=target_address)
    consumer = Consumer({**source.settings(reading, f"loop-{topic}", MEMORY), "enable.partition.eof": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    producer = Producer({**target.settings(writing, "loop", 2 * MEMORY, "lz4"), **(BARE if kind == "bare" else {})})
    send = bare(producer, topic) if kind == "bare" else whole(producer, topic)
    committed = time.monotonic()
    while True:
        messages = consumer.consume(BATCH, WAIT)
        for message in messages:
            if (error := message.error()) is not None:
                raise RuntimeError(str(error))
            send(message)
        producer.poll(0)
        if time.monotonic() - committed >= COMMIT:
            producer.flush()
            places = consumer.position(consumer.assignment())
            consumer.commit(offsets=[each for each in places if each.offset >= 0], asynchronous=False)
            committed = time.monotonic()


def whole(producer: Producer, topic: str) -> Callable[[Any], None]:
    """Sends a record with all it has."""

    def delivered(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            raise RuntimeError(str(error))

    def send(message: Any) -> None:
        _, timestamp = message.timestamp()
        while True:
            try:
                producer.produce(
                    topic,
                    message.value(),
                    message.key(),
                    partition=message.partition(),
                    timestamp=timestamp,
                    headers=message.headers(),
                    on_delivery=delivered,
                )
                return
            except BufferError:
                producer.poll(0.05)

    return send


def bare(producer: Producer, topic: str) -> Callable[[Any], None]:
    """Sends a record's value."""

    def send(message: Any) -> None:
        while True:
            try:
                producer.produce(topic, message.value(), partition=message.partition())
                return
            except BufferError:
                producer.poll(0.05)

    return send


if __name__ == "__main__":
    main()
