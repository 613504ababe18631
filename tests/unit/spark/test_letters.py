"""Dead letters of a lease: whatever refuses one, the stream waits and the next one finds, or makes, the topic again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.dead_letters import DeadLetter
from blockhouse_aggregator.spark.letters import DEAD_LETTER_REFUSED, Letters

CLUSTER = KafkaCluster(name="a", bootstrap_servers="k:9092")
STREAM = StreamId("a", "events", 0)


class Cluster:
    """Has a dead-letter topic or not; each writer looks for it only when it is asked to."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.forbidden = False
        self.open = 0

    def connect(self, _: KafkaCluster, topic: str) -> Writer:
        self.open += 1
        return Writer(self, topic)


class Writer:
    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic

    def ensure_topic(self, source: str) -> None:
        assert source == STREAM.topic
        self._cluster.topics.add(self._topic)

    def write(self, letters: Sequence[DeadLetter]) -> None:
        if self._cluster.forbidden:
            raise Permanent("the user lacks a right", reason="NotAuthorized")
        if self._topic not in self._cluster.topics:
            raise Permanent("no such topic", reason="UnknownTopic")

    def close(self) -> None:
        self._cluster.open -= 1


def test_a_topic_that_was_deleted_is_created_again_by_the_letter_after_the_one_that_notices() -> None:
    cluster = Cluster()
    letters = Letters(STREAM, CLUSTER, "dead", cluster.connect)
    letters.write([], "id")
    cluster.topics.clear()
    with pytest.raises(Retryable):
        letters.write([], "id")
    letters.write([], "id")
    assert cluster.topics == {"dead"}
    letters.close()
    assert cluster.open == 0


def test_whatever_refuses_a_letter_the_stream_waits_with_the_cause() -> None:
    cluster = Cluster()
    letters = Letters(STREAM, CLUSTER, "dead", cluster.connect)
    cluster.forbidden = True
    with pytest.raises(Retryable, match="the user lacks a right") as refused:
        letters.write([], "id")
    assert refused.value.reason == DEAD_LETTER_REFUSED
    cluster.forbidden = False
    letters.write([], "id")
    assert cluster.open == 1
