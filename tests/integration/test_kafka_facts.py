"""What brokers report about themselves, and dead letters on a real broker."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from random import Random

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from confluent_kafka.admin import AdminClient

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.dead_letters import DeadLetter, DeadLetterWriter
from blockhouse_aggregator.kafka.facts import ClusterFacts, TopicFacts
from blockhouse_aggregator.kafka.fetch import StreamReader
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.conftest import Names, TopicFactory

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(stack: Stack) -> KafkaCluster:
    return KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)


@pytest.fixture
def facts(cluster: KafkaCluster) -> ClusterFacts:
    return ClusterFacts(cluster)


def facts_of(facts: ClusterFacts, topic: str) -> TopicFacts:
    """The facts of a topic that was created just now: brokers learn of it a moment after the controller."""
    found: list[TopicFacts] = []

    def known() -> bool:
        with contextlib.suppress(Permanent):
            found.append(facts.topic(topic))
        return found != []

    assert wait_until(known, timeout=60)
    return found[0]


def letters(stream: StreamId, count: int, size: int = 10) -> list[DeadLetter]:
    headers = [("table", b"db.t"), ("empty", None)]
    key = b"original"
    return [
        DeadLetter(stream, n, key, b"x" * size, headers, 1_700_000_000_000 + n, "BadRow", "db.t") for n in range(count)
    ]


def all_of(cluster: KafkaCluster, topic: str) -> list[Message]:
    got: list[Message] = []
    with StreamReader(cluster, StreamId("a", topic, 0), fetch_wait=0.05) as reader:
        reader.seek(0)
        while not reader.at_end:
            got += reader.read(100, 5)
    return got


def test_a_topic_reports_its_shape_and_settings(facts: ClusterFacts, topic: TopicFactory) -> None:
    found = facts_of(facts, topic(3, config={"retention.ms": "3600000", "max.message.bytes": "2000000"}))
    assert (found.partitions, found.replication_factor) == (3, 1)
    assert (found.cleanup_policy, found.compacted, found.retention_ms) == ("delete", False, 3_600_000)
    assert found.max_message_bytes == 2_000_000
    assert found.leaders == (1, 1, 1)


def test_a_topic_created_again_under_its_name_has_another_id(
    facts: ClusterFacts, cluster: KafkaCluster, topic: TopicFactory, stack: Stack
) -> None:
    name = topic(1, config={"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    before = facts_of(facts, name)
    assert before.compacted
    assert before.retention_ms is None
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([name])[name].result(60)
    refusals: list[Permanent] = []

    def gone() -> bool:
        try:
            facts.topic(name)
        except Permanent as error:
            refusals.append(error)
        return refusals != []

    assert wait_until(gone, timeout=60)
    assert refusals[0].reason == "UnknownTopic"
    assert name in str(refusals[0])
    stack.kafka["a"].create_topic(name, partitions=1)
    again = facts_of(facts, name)
    assert len(again.topic_id) == 22
    assert again.topic_id != before.topic_id
    assert not set("+/") & set(again.topic_id + before.topic_id)


def test_an_empty_stream_has_empty_bounds_and_a_leader_epoch(facts: ClusterFacts, topic: TopicFactory) -> None:
    stream = StreamId("a", topic(1), 0)
    facts_of(facts, stream.topic)
    assert facts.bounds(stream) == (0, 0, 0)


def test_a_partition_that_does_not_exist_is_reported(facts: ClusterFacts, topic: TopicFactory) -> None:
    name = topic(1)
    facts_of(facts, name)
    with pytest.raises(Permanent, match="has 1 partitions") as caught:
        facts.bounds(StreamId("a", name, 7))
    assert caught.value.reason == "UnknownTopic"


def test_a_single_broker_cannot_keep_commits_safe(facts: ClusterFacts) -> None:
    found = facts.offsets_topic()
    assert (found.replication_factor, found.min_insync_replicas, found.durable) == (1, 1, False)
    assert "replication factor 1" in found.warning


def test_an_unreachable_cluster_is_retryable_and_bounded_in_time(stack: Stack) -> None:
    stack.kafka["b"].brokers[0].freeze()
    frozen = ClusterFacts(KafkaCluster(name="b", bootstrap_servers=stack.kafka["b"].bootstrap), timeout=1)
    with pytest.raises(Retryable, match="cluster b"):
        frozen.topic("any")


def test_dead_letters_keep_the_message_and_name_where_it_came_from(
    cluster: KafkaCluster, topic: TopicFactory, names: Names
) -> None:
    source = StreamId("a", topic(1), 0)
    writer = DeadLetterWriter(cluster, names.topic)
    writer.ensure_topic(source.topic)
    writer.ensure_topic(source.topic)  # it exists by now
    writer.write(letters(source, 2))
    first, second = all_of(cluster, names.topic)
    assert first.value() == b"x" * 10
    assert first.key() == f"{source}/0".encode()
    # Its own time is that of the writing: by the message's, retention might take a letter at once.
    assert first.timestamp()[0] == TIMESTAMP_CREATE_TIME
    assert first.timestamp()[1] > 1_700_000_000_000
    assert first.headers() == [
        ("table", b"db.t"),
        ("empty", None),
        ("blockhouse.detail", b""),
        ("blockhouse.stream", str(source).encode()),
        ("blockhouse.offset", b"0"),
        ("blockhouse.reason", b"BadRow"),
        ("blockhouse.table", b"db.t"),
        ("blockhouse.timestamp", b"1700000000000"),
        ("blockhouse.key", b"original"),
    ]
    assert second.key() == f"{source}/1".encode()


def test_the_largest_message_of_the_source_still_fits(cluster: KafkaCluster, topic: TopicFactory, names: Names) -> None:
    source = StreamId("a", topic(1, config={"max.message.bytes": "1500000"}), 0)
    writer = DeadLetterWriter(cluster, names.topic)
    writer.ensure_topic(source.topic)
    writer.write(letters(source, 1, size=1_499_000))
    assert [len(message.value() or b"") for message in all_of(cluster, names.topic)] == [1_499_000]


def test_a_letter_that_the_topic_has_no_room_for_is_written_without_its_value(
    cluster: KafkaCluster, topic: TopicFactory
) -> None:
    target = topic(1, config={"max.message.bytes": "10000"})
    writer = DeadLetterWriter(cluster, target)
    writer.write([replace(letters(StreamId("a", target, 0), 1)[0], value=Random(7).randbytes(20_000))])
    (message,) = all_of(cluster, target)
    assert message.value() is None
    assert ("blockhouse.omitted", b"value 20000") in (message.headers() or [])


def test_a_topic_that_has_no_room_for_any_letter_is_permanent(cluster: KafkaCluster, topic: TopicFactory) -> None:
    target = topic(1, config={"max.message.bytes": "100"})
    writer = DeadLetterWriter(cluster, target)
    with pytest.raises(Permanent) as caught:
        writer.write(letters(StreamId("a", target, 0), 1))
    assert caught.value.reason == "MessageTooLarge"
    assert all_of(cluster, target) == []


def test_a_write_without_acknowledgement_is_retryable_and_the_next_one_succeeds(
    stack: Stack, cluster: KafkaCluster, topic: TopicFactory
) -> None:
    target = topic(1)
    writer = DeadLetterWriter(cluster, target, timeout=5)
    stack.kafka["a"].brokers[0].freeze()
    with pytest.raises(Retryable):
        writer.write(letters(StreamId("a", target, 0), 3))
    stack.heal()
    writer.write(letters(StreamId("a", target, 0), 3))
    assert {message.key() for message in all_of(cluster, target)} == {f"a/{target}/0/{n}".encode() for n in range(3)}
