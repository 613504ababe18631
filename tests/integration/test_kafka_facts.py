"""What brokers tell about themselves, and dead letters on a real broker."""

from __future__ import annotations

import contextlib

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


def told_of(facts: ClusterFacts, topic: str) -> TopicFacts:
    """What is told of a topic that was created just now: brokers learn of it a moment after the controller."""
    found: list[TopicFacts] = []

    def known() -> bool:
        with contextlib.suppress(Permanent):
            found.append(facts.topic(topic))
        return found != []

    assert wait_until(known, timeout=10)
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


def test_a_topic_tells_its_shape_and_settings(facts: ClusterFacts, topic: TopicFactory) -> None:
    told = told_of(facts, topic(3, config={"retention.ms": "3600000", "max.message.bytes": "2000000"}))
    assert (told.partitions, told.replication_factor) == (3, 1)
    assert (told.cleanup_policy, told.compacted, told.retention_ms) == ("delete", False, 3_600_000)
    assert told.max_message_bytes == 2_000_000
    assert told.leaders == (1, 1, 1)


def test_a_topic_created_anew_under_its_name_has_another_id(
    facts: ClusterFacts, cluster: KafkaCluster, topic: TopicFactory, stack: Stack
) -> None:
    name = topic(1, config={"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    before = told_of(facts, name)
    assert before.compacted
    assert before.retention_ms is None
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([name])[name].result(10)
    refusals: list[Permanent] = []

    def gone() -> bool:
        try:
            facts.topic(name)
        except Permanent as error:
            refusals.append(error)
        return refusals != []

    assert wait_until(gone, timeout=10)
    assert refusals[0].reason == "UnknownTopic"
    assert name in str(refusals[0])
    stack.kafka["a"].create_topic(name, partitions=1)
    again = told_of(facts, name)
    assert len(again.topic_id) == 22
    assert again.topic_id != before.topic_id
    assert not set("+/") & set(again.topic_id + before.topic_id)


def test_an_empty_stream_has_empty_bounds_and_a_leader_epoch(facts: ClusterFacts, topic: TopicFactory) -> None:
    stream = StreamId("a", topic(1), 0)
    told_of(facts, stream.topic)
    assert facts.bounds(stream) == (0, 0)
    assert facts.leader_epoch(stream) == 0


def test_a_partition_that_does_not_exist_is_said(facts: ClusterFacts, topic: TopicFactory) -> None:
    name = topic(1)
    told_of(facts, name)
    with pytest.raises(Permanent, match="has 1 partitions") as caught:
        facts.bounds(StreamId("a", name, 7))
    assert caught.value.reason == "UnknownTopic"


def test_a_single_broker_cannot_keep_commits_safe(facts: ClusterFacts) -> None:
    told = facts.offsets_topic()
    assert (told.replication_factor, told.min_insync_replicas, told.durable) == (1, 1, False)
    assert "replication factor 1" in told.warning


def test_an_unreachable_cluster_is_retryable_and_bounded_in_time(stack: Stack) -> None:
    stack.kafka["b"].brokers[0].freeze()
    frozen = ClusterFacts(KafkaCluster(name="b", bootstrap_servers=stack.kafka["b"].bootstrap), timeout=1)
    with pytest.raises(Retryable, match="cluster b"):
        frozen.topic("any")


def test_dead_letters_keep_the_message_and_say_where_it_came_from(
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


def test_what_the_topic_refuses_is_permanent_and_the_writer_goes_on(cluster: KafkaCluster, topic: TopicFactory) -> None:
    target = topic(1, config={"max.message.bytes": "10000"})
    writer = DeadLetterWriter(cluster, target)
    with pytest.raises(Permanent) as caught:
        writer.write(letters(StreamId("a", target, 0), 1, size=20_000))
    assert caught.value.reason == "MessageTooLarge"
    writer.write(letters(StreamId("a", target, 0), 1))
    assert len(all_of(cluster, target)) == 1


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
