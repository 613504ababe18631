"""Who asks brokers where logs end, with one client for as long as it lives, when the leader dies and another one leads:
the client would ask the dead one again and again, and answers -1001 without an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.kafka.log_ends import LogEnds
from blockhouse_aggregator.verifier.offsets.bounds import LogBounds
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.process import wait_until

pytestmark = pytest.mark.integration

TOPIC, MESSAGES = "moved", 3
MOVES, STAYS = StreamId("a", TOPIC, 0), StreamId("a", TOPIC, 1)
PLACED = [[2, 1], [1, 2]]
"""Replicas of each partition, the leader first."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaClusterServers]:
    """Two brokers, of which the first is the controller, and messages in both partitions."""
    with kafka_cluster("failover", tmp_path_factory.mktemp("failover"), {1: {}, 2: {}}) as up:
        admin = AdminClient({"bootstrap.servers": up.bootstrap, "log_level": 0})
        new = NewTopic(TOPIC, num_partitions=2, replica_assignment=PLACED)
        admin.create_topics([new], operation_timeout=60)[TOPIC].result(60)
        producer = Producer({"bootstrap.servers": up.bootstrap, "acks": "all", "log_level": 0})
        for stream in (MOVES, STAYS):
            for _ in range(MESSAGES):
                producer.produce(TOPIC, b"x", partition=stream.partition)
        assert producer.flush(60) == 0
        yield up


def end_by_facts(facts: ClusterFacts) -> int:
    return facts.bounds(MOVES).end


def end_for_lag(ends: LogEnds) -> int | None:
    found = ends.latest([MOVES, STAYS]).get(MOVES)
    return None if found is None else found.high


def end_for_the_verifier(bounds: LogBounds) -> int | None:
    found = bounds.ask([MOVES, STAYS]).get(MOVES)
    return None if found is None else found.end


def test_the_end_of_a_log_is_never_wrong_and_known_again_under_another_leader(kafka: KafkaClusterServers) -> None:
    cluster = KafkaCluster(name="a", bootstrap_servers=kafka.bootstrap)
    facts, ends, bounds = ClusterFacts(cluster, timeout=4), LogEnds(cluster), LogBounds(cluster, timeout=4)
    asked: dict[str, Callable[[], int | None]] = {
        "facts": lambda: end_by_facts(facts),
        "lag": lambda: end_for_lag(ends),
        "verifier": lambda: end_for_the_verifier(bounds),
    }
    for ask in asked.values():
        assert wait_until(lambda ask=ask: known(ask), timeout=60)
    kafka.brokers[1].kill()
    for name, ask in asked.items():
        assert wait_until(lambda ask=ask: known(ask), timeout=60, interval=0), f"{name}: the other one leads"
    kafka.brokers[1].start()
    kafka.brokers[0].kill()
    kafka.brokers[0].start()
    for name, ask in asked.items():
        assert wait_until(lambda ask=ask: known(ask), timeout=60, interval=0), f"{name}: leaders have restarted"


def known(ask: Callable[[], int | None]) -> bool:
    """Whether it is known now; fails when it is anything but the truth."""
    with contextlib.suppress(Retryable):
        end = ask()
        assert end in (None, MESSAGES)
        return end is not None
    return False
