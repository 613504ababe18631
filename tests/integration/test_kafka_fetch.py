"""Reading a stream: holes move the position, an offset that is gone is reported, nothing is skipped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.kafka.fetch import OffsetOutOfRange, StreamReader
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.conftest import Names, TopicFactory

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(stack: Stack) -> KafkaCluster:
    return KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)


@pytest.fixture
def stream(topic: TopicFactory) -> StreamId:
    return StreamId("a", topic(1), 0)


@pytest.fixture
def reader(cluster: KafkaCluster, stream: StreamId) -> Iterator[StreamReader]:
    with StreamReader(cluster, stream, fetch_wait=0.05) as subject:
        yield subject


def produce(cluster: KafkaCluster, stream: StreamId, *values: bytes, key: bytes | None = None) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for value in values:
        producer.produce(stream.topic, value, key=key, partition=stream.partition)
    assert producer.flush(10) == 0


class Transactions:
    """Writes to the stream in transactions; one that is ended can be seen by readers to have ended."""

    def __init__(self, cluster: KafkaCluster, stream: StreamId) -> None:
        self._stream = stream
        self._facts = ClusterFacts(cluster)
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"of {stream.topic}", "log_level": 0}
        )
        self._producer.init_transactions(30)

    def write(self, *values: bytes) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self._stream.topic, value, partition=self._stream.partition)
        self._producer.flush(10)

    def commit(self) -> None:
        self._end(self._producer.commit_transaction)

    def abort(self) -> None:
        self._end(self._producer.abort_transaction)

    def _end(self, end: Callable[[float], None]) -> None:
        """The coordinator answers once the outcome is decided, before its marker moves the last stable offset."""
        before = self._facts.bounds(self._stream).end
        end(10)
        assert wait_until(lambda: self._facts.bounds(self._stream).end > before, timeout=60)


def read_to_end(
    reader: StreamReader, cluster: KafkaCluster, timeout: float = 20
) -> list[tuple[int | None, bytes | None]]:
    """Reads until the reader is, and reports that it is, at what is the end now; offsets and values."""
    end = ClusterFacts(cluster).bounds(reader.stream).end
    got = []
    deadline = time.monotonic() + timeout
    while True:
        got += [(m.offset(), m.value()) for m in reader.read(1000, 0.5)]
        if reader.at_end and reader.position >= end:
            return got
        assert time.monotonic() < deadline, (got, reader.position, end)


def read_until_something_happens(reader: StreamReader) -> None:
    """Reads until something comes or is raised."""
    for _ in range(20):
        if reader.read(10, 1):
            return


def test_messages_come_in_order_and_the_position_follows(
    reader: StreamReader, cluster: KafkaCluster, stream: StreamId
) -> None:
    produce(cluster, stream, b"a", b"b", b"c")
    reader.seek(1)
    assert reader.position == 1
    assert read_to_end(reader, cluster) == [(1, b"b"), (2, b"c")]
    assert (reader.position, reader.log_end) == (3, 3)


def test_reading_at_the_end_waits_and_returns_what_arrives(
    reader: StreamReader, cluster: KafkaCluster, stream: StreamId
) -> None:
    reader.seek(0)
    assert read_to_end(reader, cluster) == []
    assert reader.read(10, 0.2) == []
    produce(cluster, stream, b"new")
    assert read_to_end(reader, cluster) == [(0, b"new")]


def test_max_messages_is_a_limit_and_the_rest_comes_next(
    reader: StreamReader, cluster: KafkaCluster, stream: StreamId
) -> None:
    produce(cluster, stream, *[b"%d" % n for n in range(10)])
    reader.seek(0)
    sizes = []
    while reader.position < 10:
        sizes.append(len(reader.read(3, 5)))
        assert not reader.at_end or reader.position == 10
    assert max(sizes) <= 3
    assert sum(sizes) == 10


def test_control_records_and_aborted_transactions_at_the_end_are_passed(
    reader: StreamReader, cluster: KafkaCluster, stream: StreamId
) -> None:
    transactions = Transactions(cluster, stream)
    reader.seek(0)
    transactions.write(b"a", b"b"), transactions.commit()  # 0 1, control 2
    assert read_to_end(reader, cluster) == [(0, b"a"), (1, b"b")]
    assert reader.position == 3
    transactions.write(b"x", b"y"), transactions.abort()  # nothing but a hole: 3 4, control 5
    while reader.position < 6:
        assert reader.read(10, 5) == []
    transactions.write(b"z"), transactions.abort()  # 6, control 7
    transactions.write(b"c"), transactions.commit()  # 8, control 9
    assert read_to_end(reader, cluster) == [(8, b"c")]
    while reader.position < 10:
        assert reader.read(10, 5) == []
    assert (reader.position, reader.log_end) == (10, 10)


def test_an_open_transaction_is_the_end_and_its_messages_come_with_the_commit(
    reader: StreamReader, cluster: KafkaCluster, stream: StreamId
) -> None:
    transactions = Transactions(cluster, stream)
    produce(cluster, stream, b"plain")
    transactions.write(b"open")
    reader.seek(0)
    assert read_to_end(reader, cluster) == [(0, b"plain")]
    assert (reader.position, reader.log_end) == (1, 1)
    transactions.commit()
    assert read_to_end(reader, cluster) == [(1, b"open")]


def test_seeking_into_a_hole_reads_on_behind_it(reader: StreamReader, cluster: KafkaCluster, stream: StreamId) -> None:
    transactions = Transactions(cluster, stream)
    transactions.write(b"x", b"y"), transactions.abort()
    transactions.write(b"a"), transactions.commit()
    reader.seek(1)
    assert read_to_end(reader, cluster) == [(3, b"a")]


def test_seeking_to_the_position_keeps_what_is_prefetched(
    reader: StreamReader, cluster: KafkaCluster, stream: StreamId, stack: Stack
) -> None:
    produce(cluster, stream, *[b"%d" % n for n in range(100)])
    reader.seek(0)
    first = reader.read(1, 10)
    assert [m.offset() for m in first] == [0]
    stack.kafka["a"].brokers[0].freeze()  # what still comes was here already
    reader.seek(1)
    assert [m.offset() for m in reader.read(100, 1)] == list(range(1, 100))
    stack.heal()


def test_seeking_back_reads_the_same_messages_again(
    reader: StreamReader, cluster: KafkaCluster, stream: StreamId
) -> None:
    produce(cluster, stream, b"a", b"b", b"c")
    reader.seek(0)
    once = read_to_end(reader, cluster)
    reader.seek(0, leader_epoch=0)
    assert read_to_end(reader, cluster) == once


def test_a_compaction_gap_is_a_hole(cluster: KafkaCluster, topic: TopicFactory) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    config |= {"max.compaction.lag.ms": "100", "delete.retention.ms": "100"}
    stream = StreamId("a", topic(1, config=config), 0)
    deadline = time.monotonic() + 60
    written = 0
    while True:  # until the cleaner has run; new segments need new messages
        produce(cluster, stream, *[b"%d" % (written + n) for n in range(10)], key=b"same")
        written += 10
        with StreamReader(cluster, stream, fetch_wait=0.05) as reader:
            reader.seek(0)
            offsets = [offset for offset, _ in read_to_end(reader, cluster)]
            assert reader.position == written
        if len(offsets) < written:
            break
        assert time.monotonic() < deadline
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == written - 1


def test_an_offset_deleted_by_retention_is_reported_and_reading_continues_from_the_new_begin(
    reader: StreamReader, cluster: KafkaCluster, stream: StreamId
) -> None:
    produce(cluster, stream, *[b"%d" % n for n in range(10)])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_records([TopicPartition(stream.topic, 0, 6)])[TopicPartition(stream.topic, 0)].result(60)
    reader.seek(3)
    with pytest.raises(OffsetOutOfRange, match="retention") as caught:
        read_to_end(reader, cluster)
    assert (caught.value.reason, caught.value.offset) == ("BelowLogStart", 3)
    assert (caught.value.begin, caught.value.end) == (6, 10)
    reader.seek(6)
    assert [offset for offset, _ in read_to_end(reader, cluster)] == [6, 7, 8, 9]


def test_an_offset_beyond_the_end_is_reported_even_when_asked_for_twice(
    reader: StreamReader, cluster: KafkaCluster, stream: StreamId
) -> None:
    produce(cluster, stream, b"a")
    for _ in range(2):
        reader.seek(500)
        with pytest.raises(OffsetOutOfRange, match="truncated") as caught:
            read_to_end(reader, cluster)
        assert (caught.value.reason, caught.value.begin, caught.value.end) == ("BeyondLogEnd", 0, 1)


def test_an_unknown_topic_is_permanent(cluster: KafkaCluster, names: Names) -> None:
    with StreamReader(cluster, StreamId("a", names.topic, 0)) as reader:
        reader.seek(0)
        with pytest.raises(Permanent) as caught:
            read_until_something_happens(reader)
        assert caught.value.reason == "UnknownTopic"


def test_a_topic_deleted_while_it_is_read_is_permanent(
    reader: StreamReader, cluster: KafkaCluster, stream: StreamId
) -> None:
    produce(cluster, stream, b"a")
    reader.seek(0)
    read_to_end(reader, cluster)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.delete_topics([stream.topic])[stream.topic].result(60)
    with pytest.raises(Permanent) as caught:
        read_until_something_happens(reader)
    assert caught.value.reason == "UnknownTopic"


def test_a_dead_broker_is_retryable_and_reading_continues_after_it(
    reader: StreamReader, cluster: KafkaCluster, stream: StreamId, stack: Stack
) -> None:
    produce(cluster, stream, b"a", b"b")
    reader.seek(0)
    assert [offset for offset, _ in read_to_end(reader, cluster)] == [0, 1]
    stack.kafka["a"].brokers[0].kill()
    with pytest.raises(Retryable):
        read_until_something_happens(reader)
    stack.kafka["a"].brokers[0].start()
    produce(cluster, stream, b"c")
    got: list[int | None] = []
    deadline = time.monotonic() + 30
    while not got and time.monotonic() < deadline:
        try:
            got = [message.offset() for message in reader.read(10, 1)]
        except Retryable:
            continue
    assert got == [2]


def test_facts_agree_with_what_is_read(reader: StreamReader, cluster: KafkaCluster, stream: StreamId) -> None:
    transactions = Transactions(cluster, stream)
    transactions.write(b"a"), transactions.commit()
    transactions.write(b"open")
    reader.seek(0)
    read_to_end(reader, cluster)
    facts = ClusterFacts(cluster)
    bounds = facts.bounds(stream)
    assert (bounds.begin, bounds.end) == (0, reader.position) == (0, 2)
    transactions.abort()
