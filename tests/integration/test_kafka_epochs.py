"""Logs that are not what was read: a reader that continues with the leader epoch of its position finds out.

A log is cut as a power loss does it: the broker dies, and the end of the segment is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Blocked
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.fetch import StreamReader, reaches
from e2e.stack import Stack
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
    with StreamReader(cluster, stream) as made:
        yield made


def read_to_end(reader: StreamReader) -> int:
    count = 0
    for _ in range(200):
        count += len(reader.read(1000, 0.2))
        if reader.at_end:
            return count
    raise AssertionError("the end of the log was not reached")


def produce(cluster: KafkaCluster, stream: StreamId, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for _ in range(count):
        producer.produce(stream.topic, b"x", partition=0)
    assert producer.flush(30) == 0


def segment_of(stack: Stack, stream: StreamId) -> Path:
    (broker,) = stack.kafka["a"].brokers
    (found,) = Path(broker.folder, "data", f"{stream.topic}-{stream.partition}").glob("*0.log")
    return found


def cut(stack: Stack, stream: StreamId, size: int) -> None:
    """Kill the broker, leave `size` bytes of the log, start it again: a new leader epoch."""
    (broker,) = stack.kafka["a"].brokers
    broker.kill()
    os.truncate(segment_of(stack, stream), size)
    broker.start()


def test_a_log_that_ends_with_a_marker_of_a_later_epoch_was_not_cut(
    stack: Stack, names: Names, cluster: KafkaCluster, stream: StreamId
) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": names.unique("id"), "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(5):
        producer.produce(stream.topic, b"x", partition=0)
    producer.flush(30)
    (broker,) = stack.kafka["a"].brokers
    broker.kill()
    broker.start()
    producer.commit_transaction(60)

    with StreamReader(cluster, stream) as reader:
        reader.seek(0)
        assert (read_to_end(reader), reader.position) == (5, 6)

        assert reader.epoch > 0, "that of the messages is 0: with it the log would seem to have been cut"
        assert reaches(cluster, stream, 6, reader.epoch, 10.0)
        assert not reaches(cluster, stream, 6, 0, 10.0)
    with StreamReader(cluster, stream) as reader:
        reader.seek(6, 0)
        with pytest.raises(Blocked, match="was cut below offset 6") as caught:
            read_to_end(reader)
    assert caught.value.reason == "LogTruncated"


def test_a_log_that_was_cut_and_written_again(
    stack: Stack, cluster: KafkaCluster, stream: StreamId, reader: StreamReader
) -> None:
    produce(cluster, stream, 60)
    size = segment_of(stack, stream).stat().st_size
    produce(cluster, stream, 30)
    reader.seek(0)
    read_to_end(reader)
    position, epoch = reader.position, reader.epoch
    assert (position, epoch) == (90, 0)
    assert reaches(cluster, stream, position, epoch, 10.0)

    cut(stack, stream, size)
    produce(cluster, stream, 60)

    assert not reaches(cluster, stream, position, epoch, 10.0)
    assert reaches(cluster, stream, 60, epoch, 10.0)
    with StreamReader(cluster, stream) as other:
        other.seek(position, epoch)
        with pytest.raises(Blocked) as caught:
            read_to_end(other)
        assert caught.value.reason == "LogTruncated"
        other.seek(position)
        assert read_to_end(other) == 30, "without an epoch nothing is noticed"
