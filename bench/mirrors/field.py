"""Two Kafka clusters, topics of the source with records that become visible at a moment, and what the target has.

The backlog lies in an open transaction, as in `bench.testbed`: whatever mirrors is connected and warm, and has read
nothing of it, when the clock starts.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bench.processes import cpu_seconds
from bench.testbed import HiddenTopic
from blockhouse.config.endpoints import KafkaCluster
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.kafka.bounds import LogBounds
from e2e.stack import StackSpec
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.server import StackError

PARTITIONS = 8
VALUE, KEY = 1000, 16
"""Bytes. Half of a value are random letters and digits, half are words: lz4 makes about half of it."""
RECORD = VALUE + KEY
HEADERS: list[tuple[str, str | bytes | None]] = [("trace", b"0123456789abcdef")]
DISTINCT = 512
"""Different values: together more than the window in which lz4 looks for repetitions."""
WARM = 50_000
"""Records that everyone mirrors before the clock starts."""
SPEC = StackSpec(kafka_heap="768m", kafka_full_jit=True)
_PRODUCER: dict[str, Any] = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1 << 20,
    "queue.buffering.max.messages": 500_000,
    "transaction.timeout.ms": 600_000,
    "log_level": 0,
}


@dataclass(frozen=True)
class Field:
    """The clusters a and b, and a folder for what runs between them."""

    kafka: dict[str, KafkaClusterServers]
    folder: Path

    @cached_property
    def _bounds(self) -> LogBounds:
        return LogBounds(KafkaCluster(name="b", bootstrap_servers=self.target))

    @property
    def source(self) -> str:
        return self.kafka["a"].bootstrap

    @property
    def target(self) -> str:
        return self.kafka["b"].bootstrap

    def create(self, topic: str, **source_config: str) -> None:
        """The topic on both clusters, so that no contestant has to make it."""
        self.kafka["a"].create_topic(topic, partitions=PARTITIONS, config=source_config)
        self.kafka["b"].create_topic(topic, partitions=PARTITIONS)

    def delete(self, topic: str) -> None:
        for cluster in self.kafka.values():
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            admin.delete_topics([topic])[topic].result(30)

    def arrived(self, topic: str) -> int:
        """Records that the target has."""
        keys = [Key(topic, number) for number in range(PARTITIONS)]
        return sum(bound.end for bound in self._bounds.of(keys).values())

    def cpu(self) -> float:
        """CPU seconds of all brokers so far."""
        return sum(cpu_seconds(broker.pid) for each in self.kafka.values() for broker in each.brokers if broker.pid)


@contextmanager
def field(folder: Path) -> Iterator[Field]:
    """Up while the context lasts; its data is removed."""
    folder.mkdir(parents=True)
    try:
        with ExitStack() as exits:
            clusters = {name: exits.enter_context(kafka_cluster(name, folder, {1: {}}, SPEC)) for name in "ab"}
            yield Field(clusters, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def values(seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    letters = [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz0123456789", k=VALUE // 2)) for _ in range(DISTINCT)]
    words = [word.encode() for word in ("order", "customer", "amount", "created", "region", "status", "pending", "eu")]
    texts = [b" ".join(chance.choices(words, k=VALUE))[: VALUE - VALUE // 2] for _ in range(DISTINCT)]
    return [a + b for a, b in zip(letters, texts, strict=True)]


def hidden(field: Field, topic: str, records: int) -> HiddenTopic:
    """`WARM` records that everyone sees, and behind them `records` that no reader sees before `reveal`."""
    produce(Producer({"bootstrap.servers": field.source, **_PRODUCER}), topic, WARM)
    producer = Producer({"bootstrap.servers": field.source, "transactional.id": topic, **_PRODUCER})
    producer.init_transactions(60)
    producer.begin_transaction()
    produce(producer, topic, records)
    return HiddenTopic(topic, producer)


def produce(producer: Producer, topic: str, records: int) -> None:
    """So many records, round-robin, acknowledged when it returns. StackError when the brokers do not take them."""
    made = values()
    for number in range(records):
        key = b"%016d" % number
        while True:
            try:
                producer.produce(topic, made[number % DISTINCT], key, number % PARTITIONS, headers=HEADERS)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1024 == 0:
            producer.poll(0)
    if left := producer.flush(120):
        raise StackError(f"{left} records of topic {topic} were not taken within two minutes")
