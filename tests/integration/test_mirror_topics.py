"""Topics that are not plain logs under a mirror: transactions with aborts, compaction, timestamps of a broker."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from blockhouse_mirror.audit.compare import PartitionAudit
from e2e.stack import Stack
from tests.integration.conftest import Names
from tests.integration.mirror_process import MirrorFactory, ends, until

pytestmark = pytest.mark.integration
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "500",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "1000",
}


def transactions(bootstrap: str, topic: str, name: str) -> int:
    """Ten transactions of ten records each, every second one aborted; the number of records that count."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions()
    for number in range(10):
        producer.begin_transaction()
        for record in range(10):
            producer.produce(topic, f"{number} {record}".encode(), f"{record}".encode(), partition=0)
        producer.flush()  # so that what is aborted is in the log
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    return 50


def versions(bootstrap: str, topic: str, numbers: range) -> None:
    """A version of each of ten keys a number, the last key deleted by each; in segments of their own."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        for key in range(10):
            value = None if key == 9 else f"{key} in version {number}".encode()
            producer.produce(topic, value, f"{key}".encode(), partition=0)
        assert producer.flush(30) == 0


def kept(bootstrap: str, topic: str) -> int:
    """How many records of a topic's one partition can be read."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "kept", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = 0
    while (message := consumer.poll(30)) is not None and message.error() is None:
        count += 1
    consumer.close()
    return count


def test_aborted_compacted_and_broker_stamped_topics_are_mirrored_and_judged_by_what_they_are(
    stack: Stack, mirror: MirrorFactory, names: Names
) -> None:
    a, b = stack.kafka["a"], stack.kafka["b"]
    transactional, compacted, stamped, stamping = (names.unique("topic") for _ in range(4))
    a.create_topic(transactional, partitions=1)
    for cluster in (a, b):
        cluster.create_topic(compacted, partitions=1, config=COMPACTED)
    a.create_topic(stamped, partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    a.create_topic(stamping, partitions=1)
    b.create_topic(stamping, partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    versions(a.bootstrap, compacted, range(20))
    committed = transactions(a.bootstrap, transactional, names.unique("writer"))
    producer = Producer({"bootstrap.servers": a.bootstrap})
    for topic in (stamped, stamping):
        for number in range(20):
            producer.produce(topic, b"x", partition=0, timestamp=int(time.time() * 1000) - 5000 - number)
    assert producer.flush(30) == 0
    km = mirror("|".join((transactional, compacted, stamped, stamping)))
    km.start()
    until(km.mirroring, "it mirrors")
    versions(a.bootstrap, compacted, range(20, 30))
    until(lambda: compacts(stack, compacted), "both ends compact, each by itself")
    for topic in (transactional, compacted, stamped, stamping):
        until(lambda: km.caught_up(ends(stack, topic, 1)), f"{topic} is mirrored")  # noqa: B023
    assert km.terminate() == 0
    found = {each.topic: each for each in km.audit()}
    assert [each for each in found.values() if not each.exact] == []
    assert {topic: judged(each) for topic, each in found.items()} == {
        transactional: (committed, "every record"),
        compacted: (found[compacted].compared, "survivors"),
        stamped: (20, "every record"),
        stamping: (20, "every record, 20 without timestamps"),
    }


def compacts(stack: Stack, topic: str) -> bool:
    """Whether both ends have lost some of 300 records; further ones let the segments behind them be closed."""
    versions(stack.kafka["a"].bootstrap, topic, range(99, 100))
    return all(kept(stack.kafka[cluster].bootstrap, topic) < 200 for cluster in "ab")


def judged(found: PartitionAudit) -> tuple[int, str]:
    return found.compared, found.judged
