"""The loop that people write first: consume from one cluster, produce to the other one, commit each second.

    python -m bench.mirrors.loop SOURCE TARGET TOPIC KIND

KIND `whole` keeps keys, headers and timestamps, writes as safely as a mirror does (acks=all, idempotence), and commits
what is acknowledged: at least once. `bare` sends values alone and commits what it has read, so that a crash may lose
some. Both read and write with the settings of a mirror's clients and keep the partition. Runs until it is killed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from operator import ge
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
    safely = target.settings(writing, "loop", 2 * MEMORY, "lz4", target.LINGER_MS)
    producer = Producer({**safely, **(BARE if kind == "bare" else {})})
    sent, acknowledged = [0] * PARTITIONS, [0] * PARTITIONS
    send = bare(producer, topic) if kind == "bare" else whole(producer, topic, sent, acknowledged)
    places, wait_for, looked = list[TopicPartition](), list[int](), time.monotonic()
    while True:
        for message in consumer.consume(BATCH, WAIT):
            if (error := message.error()) is not None:
                raise RuntimeError(str(error))
            send(message)
        producer.poll(0)
        if places and all(map(ge, acknowledged, wait_for)):
            consumer.commit(offsets=places, asynchronous=True)
            places = []
        if not places and time.monotonic() - looked >= COMMIT:
            places = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
            wait_for, looked = list(sent), time.monotonic()


def whole(producer: Producer, topic: str, sent: list[int], acknowledged: list[int]) -> Callable[[Any], None]:
    """Sends a record with all it has, and counts by partition."""

    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        acknowledged[message.partition()] += 1

    def send(message: Any) -> None:
        _, timestamp = message.timestamp()
        partition = message.partition()
        while True:
            try:
                producer.produce(
                    topic,
                    message.value(),
                    message.key(),
                    partition,
                    timestamp=timestamp,
                    headers=message.headers(),
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.05)
        sent[partition] += 1

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
