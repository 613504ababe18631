"""The servers of a measurement: one Kafka cluster, ZooKeeper and two ClickHouse replicas, with fresh tables and topics.

Loaders begin when a prepared topic becomes visible: its messages lie in an open transaction, and readers with
`read_committed` (Blockhouse and librdkafka's default) see all of them at once when it commits. So every loader has
joined, connected and waits when the clock starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bench import dataset
from bench.processes import cpu_seconds
from e2e.stack import Stack, StackSpec
from e2e.stack.process import wait_until
from e2e.stack.server import StackError
from e2e.stack.tables import create_replicated_table, drop_replicated_table

QUORUM = 2
PARTITIONS = 2
SPEC = StackSpec(kafka_clusters=1, replicas=2, kafka_heap="512m", kafka_full_jit=True, clickhouse_memory=4_000_000_000)
SETTLE_TIMEOUT = 120.0
Headers = dict[str, str | bytes | None]
FIRST_OFFSET = 1
"""Offset 0 of every partition is a message for another table, with which Blockhouse warms up."""

_PRODUCER = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1 << 20,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 << 10,
    "transaction.timeout.ms": 600_000,
    "log_level": 0,
}
_BUSY = (
    "SELECT (SELECT count() FROM system.merges) + (SELECT sum(queue_size) FROM system.replicas "
    "WHERE database = 'default')"
)


@dataclass(frozen=True, slots=True)
class ServerCpu:
    """CPU seconds used so far, by kind of server."""

    kafka: float
    zookeeper: float
    clickhouse: float

    def __sub__(self, other: ServerCpu) -> ServerCpu:
        return ServerCpu(self.kafka - other.kafka, self.zookeeper - other.zookeeper, self.clickhouse - other.clickhouse)

    @property
    def all(self) -> float:
        return self.kafka + self.zookeeper + self.clickhouse


class HiddenTopic:
    """A topic whose prepared messages no reader sees before `reveal`."""

    def __init__(self, name: str, producer: Producer) -> None:
        self.name = name
        self._producer = producer

    def reveal(self) -> None:
        self._producer.commit_transaction(60)


class Testbed:
    """A context manager: the servers live, with their data in `folder`, as long as it. Its tables have the column
    `_kafka_topic` unless `names_topic` is False."""

    def __init__(self, folder: Path, spec: StackSpec = SPEC, *, names_topic: bool = True) -> None:
        self.stack = Stack(folder, spec)
        self.names_topic = names_topic

    def __enter__(self) -> Self:
        self.stack.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.__exit__(kind, error, trace)

    @property
    def bootstrap(self) -> str:
        return self.stack.kafka["a"].bootstrap

    @property
    def first_replica(self) -> tuple[str, int]:
        """Host and native port of the replica that is inserted into."""
        server = self.stack.clickhouse[1, 1]
        return server.host, server.port

    def cpu(self) -> ServerCpu:
        stack = self.stack
        brokers = [broker.pid for cluster in stack.kafka.values() for broker in cluster.brokers]
        return ServerCpu(
            kafka=sum(cpu_seconds(pid) for pid in brokers if pid),
            zookeeper=cpu_seconds(stack.zookeeper.pid or 0),
            clickhouse=sum(cpu_seconds(server.pid) for server in stack.clickhouse.values() if server.pid),
        )

    def create_table(self, name: str) -> None:
        table = dataset.history(f"default.{name}", names_topic=self.names_topic).current
        assert table is not None
        create_replicated_table(
            self.stack,
            name,
            ", ".join(f"{column.name} {column.type}" for column in table.columns),
            order_by=dataset.ORDER_BY,
            partition_by=dataset.PARTITION_BY,
            provenance=False,
        )

    def drop_table(self, name: str) -> None:
        drop_replicated_table(self.stack, name)

    def rows(self, table: str) -> list[int]:
        """Rows of the table on each replica."""
        return [int(s.execute(f"SELECT count() FROM {table}")[0][0]) for s in self.stack.clickhouse.values()]

    def settle(self) -> None:
        """Wait until no replica merges or fetches. StackError when they do not come to rest."""
        calm = 0

        def settled() -> bool:
            nonlocal calm
            busy = sum(int(s.execute(_BUSY)[0][0]) for s in self.stack.clickhouse.values())
            calm = 0 if busy else calm + 1
            return calm >= 3

        if not wait_until(settled, timeout=SETTLE_TIMEOUT, interval=0.3):
            raise StackError(f"the replicas still merge or fetch after {SETTLE_TIMEOUT:g} s")

    def hidden_topic(self, name: str, values: Iterable[bytes], headers: Headers) -> HiddenTopic:
        """A topic with `values` round-robin in its partitions, in an open transaction."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name, **_PRODUCER})
        producer.init_transactions(60)
        producer.begin_transaction()
        _produce(producer, name, values, headers)
        return HiddenTopic(name, producer)

    def create_topic(self, name: str) -> None:
        self.stack.kafka["a"].create_topic(name, partitions=PARTITIONS)

    def send(self, topic: str, values: Iterable[bytes], headers: Headers) -> None:
        """Plain messages, round-robin; returns when the broker has them."""
        _produce(Producer({"bootstrap.servers": self.bootstrap, **_PRODUCER}), topic, values, headers)

    def delete_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([name])[name].result(30)


def _produce(producer: Producer, topic: str, values: Iterable[bytes], headers: Headers) -> None:
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS, headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1024 == 0:
            producer.poll(0)
    if left := producer.flush(120):
        raise StackError(f"{left} messages for topic {topic} were not taken within two minutes")


def table_headers(table: str) -> Headers:
    """Headers of `rows` messages for a table of database default."""
    return {"table": f"default.{table}", "format": "rows", "schema": "1"}
