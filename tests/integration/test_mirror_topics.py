"""Topics that are not plain logs under a mirror: transactions, compaction, timestamps of a broker, refusals."""

from __future__ import annotations

import os
import time

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from blockhouse_mirror.audit.compare import PartitionAudit
from e2e.kit.mirror import ends
from e2e.kit.mirror_feed import Feed
from e2e.stack import Stack
from tests.integration.conftest import Names
from tests.integration.mirror_feed import MirrorFactory, until

pytestmark = [pytest.mark.integration, pytest.mark.long]
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


def read_all(bootstrap: str, topic: str) -> list[Message]:
    """All records of a topic's one partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "kept", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(message)
    consumer.close()
    return found


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
        until(lambda: km.caught_up(ends(stack.kafka["a"], topic, 1)), f"{topic} is mirrored")  # noqa: B023
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
    return all(len(read_all(stack.kafka[cluster].bootstrap, topic)) < 200 for cluster in "ab")


def judged(found: PartitionAudit) -> tuple[int, str]:
    return found.compared, found.judged


def test_what_the_target_refuses_becomes_a_letter_and_its_partition_continues_in_order(
    stack: Stack, mirror: MirrorFactory, names: Names
) -> None:
    a, b = stack.kafka["a"], stack.kafka["b"]
    topic, other, letters = (names.unique("topic") for _ in range(3))
    a.create_topic(topic, partitions=1, config={"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    a.create_topic(other, partitions=1)
    b.create_topic(topic, partitions=1, config={"max.message.bytes": "10000", "cleanup.policy": "compact"})
    refusable(a.bootstrap, topic)
    changes = {"onRefused": "DeadLetter", "deadLetters": {"topic": letters}}
    km = mirror(f"{topic}|{other}", targetTopics={"interval": "1s", "sync": []}, **changes)
    km.start()
    until(lambda: km.caught_up({(topic, 0): 30}), "it passes what is refused")
    found = km.partition(topic, 0)
    assert found is not None
    assert (found.dead_letters, found.records) == (4, 26)
    Feed(a.bootstrap, other, [0], seed=1).write(100)
    until(lambda: km.caught_up({(other, 0): 100}), "its neighbour continues")
    assert km.terminate() == 0
    audited = {each.topic: each for each in km.audit()}
    assert all(each.exact for each in audited.values())
    assert audited[topic].refused.tolist() == [11, 12, 21, 25]
    assert audited[topic].judged == "survivors, 4 refused"
    written = {message.key(): message for message in read_all(b.bootstrap, letters)}
    assert set(written) == {b"11", b"12", None, b"25"}
    assert len(written[b"11"].value() or b"") == 50_000
    headers = dict(written[b"12"].headers() or [])
    assert (headers["number"], headers["blockhouse.topic"]) == (b"12", f"{topic}/0".encode())


def refusable(bootstrap: str, topic: str) -> None:
    """30 records: 11 and 12 are too large for the target, 21 has no key, and 25 is of a time to come."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(30):
        value = os.urandom(50_000 if number in (11, 12) else 100)
        moment = int(time.time() * 1000) + (7_200_000 if number == 25 else 0)
        name = f"{number}".encode()
        key = None if number == 21 else name
        producer.produce(topic, value, key, partition=0, timestamp=moment, headers=[("number", name)])
        producer.flush()


def test_two_mirrors_that_rename_create_no_copies_of_copies(stack: Stack, mirror: MirrorFactory, names: Names) -> None:
    topic, near, far = (names.unique("topic") for _ in range(3))
    stack.kafka["a"].create_topic(topic, partitions=1)
    include = [f".*{topic}"]
    there = mirror(topic, topics={"include": include, "rename": {"prefix": f"{near}."}})
    source, target = there.document["source"], there.document["target"]
    back = mirror(topic, source=target, target=source, topics={"include": include, "rename": {"prefix": f"{far}."}})
    there.start()
    until(lambda: len(there.audit()) == 1, "the topic is created, and its position is written")
    back.start()
    until(lambda: (found := back.status()) is not None and bool(found.copies), "the way back knows the copy")
    found = back.status()
    assert found is not None
    assert (found.copies, found.partitions, found.errors) == ({f"{near}.{topic}": topic}, (), {})
    admin = AdminClient({"bootstrap.servers": stack.kafka["a"].bootstrap})
    assert [name for name in admin.list_topics(timeout=10).topics if topic in name] == [topic]


def test_a_restarted_driver_knows_the_load_at_once(stack: Stack, mirror: MirrorFactory, names: Names) -> None:
    topic = names.unique("topic")
    stack.kafka["a"].create_topic(topic, partitions=1)
    km = mirror(topic, load={"interval": "4s", "history": "Topic", "default": "1"})
    with Feed(stack.kafka["a"].bootstrap, topic, [0], seed=1):
        km.start()
        until(lambda: (found := km.partition(topic, 0)) is not None and found.rate_source == "partition", "it measures")
    measured = km.partition(topic, 0)
    assert measured is not None
    assert km.terminate() == 0

    km.document["load"]["interval"] = "60s"  # nothing it measures itself by then
    km.start()
    until(km.mirroring, "it mirrors again")

    found = km.partition(topic, 0)
    assert found is not None
    assert found.rate_source == "history"
    assert found.bytes_per_second == pytest.approx(measured.bytes_per_second, rel=0.5)
    assert found.bytes_per_second > 1000
