"""What the tests of throttles share: topics to move on three brokers, a producer beside the move, what is left."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from threading import Event as Flag
from threading import Thread
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.throttling import LISTS, RATES
from blockhouse.placement.model import PartitionMap, ReplicaSet, TopicPartition
from e2e.stack.kafka import KafkaClusterServers
from e2e.stack.process import wait_until

MB = 1_000_000
BROKERS = (1, 2, 3)
SMALL_FETCHES = {"replica.fetch.max.bytes": "65536", "replica.fetch.response.max.bytes": "262144"}
"""A throttle takes effect after a fetch: one that brings everything would never be throttled."""


def create(
    kafka: KafkaClusterServers, fleet: KafkaFleet, topic: str, megabytes: int, replicas: ReplicaSet = (1, 2)
) -> PartitionMap:
    """A topic of one partition on these brokers with so much in it; returns the plan that moves it to 3 and 2."""
    new = NewTopic(topic, num_partitions=1, replica_assignment=[list(replicas)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})  # its requests end when it is forgotten
    admin.create_topics([new])[topic].result(timeout=60)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "queue.buffering.max.kbytes": 65536})
    for _ in range(megabytes * 10):
        while True:
            try:
                producer.produce(topic, os.urandom(100_000), partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    key = TopicPartition(topic, 0)
    assert wait_until(lambda: fleet.partitions()[key].in_sync == set(replicas), timeout=60)
    return PartitionMap({key: (3, 2)})


class Writer:
    """Produces so many bytes a second to partition 0 until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, rate: float) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._topic, self._rate = topic, rate
        self._stopped = Flag()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        size, sent, began = 50_000, 0, time.monotonic()
        while not self._stopped.is_set():
            if sent <= (time.monotonic() - began) * self._rate:
                self._producer.produce(self._topic, os.urandom(size), partition=0)
                sent += size
                self._producer.poll(0)
            else:
                self._producer.poll(0.005)

    def close(self) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def settings_left(fleet: KafkaFleet, topic: str) -> dict[str, Any]:
    """Every throttle setting of the brokers and of the topic."""
    found: dict[str, Any] = {str(id): given for id, given in fleet.broker_settings(BROKERS, RATES).items() if given}
    lists = fleet.topic_settings([topic], LISTS).get(topic)
    return found | ({topic: lists} if lists else {})


def is_left(fleet: KafkaFleet, topic: str, expected: Mapping[str, Any] | None = None) -> bool:
    """Whether these (default: no) settings are left, once brokers know of the last change."""
    return wait_until(lambda: settings_left(fleet, topic) == (expected or {}), timeout=60)


def size_on(fleet: KafkaFleet, key: TopicPartition, broker: int) -> float:
    found = fleet.storage().replicas.get((key, broker))
    return found.size if found else 0.0
