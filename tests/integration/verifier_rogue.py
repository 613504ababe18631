"""A rogue for a verifier to find: commits whatever it is given, from outside of any member, into an empty group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.metadata import codec
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window
from blockhouse_aggregator.kafka.facts import ClusterFacts
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.conftest import Names


class Rogue:
    """Commits whatever it is given, for partition 0 of a topic in one cluster."""

    def __init__(self, stack: Stack, cluster: str, topic: str, group: str) -> None:
        kafka = stack.kafka[cluster]
        self.topic, self.stream = topic, f"{cluster}/{topic}/0"
        self.topic_id = topic_id(stack, topic)
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap})
        self._consumer = Consumer(
            {"bootstrap.servers": kafka.bootstrap, "group.id": group, "enable.auto.commit": False}
        )
        self.history: list[tuple[int, str]] = []
        # On a cluster without any group yet the coordinator is only being created.
        assert wait_until(self._has_coordinator, timeout=60)

    def _has_coordinator(self) -> bool:
        try:
            return bool(self._consumer.committed([TopicPartition(self.topic, 0)], timeout=5))
        except KafkaException:
            return False

    def produce(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(self.topic, b"x", partition=0)
        assert self._producer.flush(10) == 0

    def commit(self, offset: int, text: str) -> tuple[int, str]:
        made = TopicPartition(self.topic, 0, offset, metadata=text) if text else TopicPartition(self.topic, 0, offset)
        (done,) = self._consumer.commit(offsets=[made], asynchronous=False)
        assert done.error is None, done.error
        self.history.append((offset, text))
        return offset, text

    def owner(self, metadata: Metadata) -> tuple[int, str]:
        return self.commit(metadata.committed_offset, codec.encode(metadata))

    def close(self) -> None:
        self._consumer.close()


def topic_id(stack: Stack, topic: str) -> str:
    cluster = KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)
    return ClusterFacts(cluster).topic(topic).topic_id


def config(stack: Stack, names: Names, topic: str, port: int, **more: Any) -> dict[str, Any]:
    return {
        "pipeline": names.stem.replace("_", "-")[:32].strip("-"),
        "groups": [names.group],
        "topics": [topic],
        "clusters": [{"name": k.name, "bootstrapServers": k.bootstrap} for k in stack.kafka.values()],
        "admin": {"port": port},
        "checkpoint": {"interval": "1s", "topic": f"{names.stem}-memory"},
        "logInterval": "1s",
        **more,
    }


def sound(rogue: Rogue) -> Metadata:
    """The last of a few commits that keep the protocol: P = 40, table 1 in flight [30, 39], table 2 lagging from 35."""
    rogue.produce(60)
    first = Metadata("r1", 1, 1_000, rogue.topic_id, 0, 20, Window(0, 20), (block(1, 0, 19, 20),))
    second = replace(first, seq=2, position=30, window=Window(0, 30), tables=(block(1, 20, 29, 10),))
    tables = (block(1, 30, 39, 8), TableEntry(2, None, 35, 2))
    third = replace(second, seq=3, position=40, window=Window(0, 38), tables=tables)
    for metadata in (first, second, third):
        rogue.owner(metadata)
    return third


def block(table: int, begin: int, end: int, messages: int) -> TableEntry:
    return TableEntry(table, InFlight(begin, end, messages, 1, 7, 1_000))
