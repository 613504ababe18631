"""A mirror on two real clusters: content, order and place of every record; topics that grow, stop, or come back."""

from __future__ import annotations

import os
from secrets import randbelow

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions

from e2e.kit.mirror import ends
from e2e.kit.mirror_feed import Feed
from e2e.stack import Stack
from tests.integration.conftest import Names
from tests.integration.mirror_feed import MirrorFactory, assert_exact, until

pytestmark = [pytest.mark.integration, pytest.mark.long]
SEED = int(os.environ.get("SEED") or randbelow(1 << 31))


def test_every_record_is_mirrored_unchanged_in_its_order_and_place(
    stack: Stack, mirror: MirrorFactory, names: Names
) -> None:
    print(f"SEED={SEED}")
    topics = [names.unique("topic") for _ in range(2)]
    for topic in topics:
        stack.kafka["a"].create_topic(topic, partitions=3, config={"retention.ms": "123456789"})
        Feed(stack.kafka["a"].bootstrap, topic, range(3), seed=SEED).write(1000)
    km = mirror("|".join(topics), topics={"include": topics, "rename": {"prefix": "of-a."}})
    km.start()
    targets = {key: end for topic in topics for key, end in ends(stack.kafka["a"], topic, 3).items()}
    until(lambda: km.caught_up(targets), "everything is mirrored")
    admin = AdminClient({"bootstrap.servers": stack.kafka["b"].bootstrap})
    resource = ConfigResource("topic", f"of-a.{topics[0]}")
    assert admin.describe_configs([resource])[resource].result()["retention.ms"].value == "123456789"
    found = km.status()
    assert found is not None
    assert found.errors == {}
    assert sum(each.records for each in found.partitions) == 2000
    assert_exact(km, 2000)


def test_a_mirror_that_ends_in_order_continues_at_once(stack: Stack, mirror: MirrorFactory, names: Names) -> None:
    print(f"SEED={SEED}")
    topic = names.unique("topic")
    stack.kafka["a"].create_topic(topic, partitions=2)
    km = mirror(topic)
    with Feed(stack.kafka["a"].bootstrap, topic, range(2), seed=SEED):
        km.start()
        until(lambda: (found := km.partition(topic, 0)) is not None and found.records > 500, "records are mirrored")
        assert km.terminate() == 0
        km.start()
        until(km.mirroring, "it mirrors again")
        found = km.status()
        assert found is not None
        assert not any(each.waits for each in found.partitions)
    until(lambda: km.caught_up(ends(stack.kafka["a"], topic, 2)), "everything is mirrored")
    assert_exact(km, sum(ends(stack.kafka["a"], topic, 2).values()))


def test_what_was_in_the_target_is_not_mirrored_back(stack: Stack, mirror: MirrorFactory, names: Names) -> None:
    topic = names.unique("topic")
    for cluster in "ab":
        stack.kafka[cluster].create_topic(topic, partitions=1)
        Feed(stack.kafka[cluster].bootstrap, topic, [0], seed=SEED).write(100)
    there = mirror(topic)
    source, target = there.document["source"], there.document["target"]
    back = mirror(topic, source=target, target=source)
    there.start()
    back.start()
    until(lambda: (found := there.partition(topic, 0)) is not None and found.left_out == 100, "the way back is seen")
    until(lambda: (found := back.partition(topic, 0)) is not None and found.left_out == 100, "the way there is seen")
    assert ends(stack.kafka["a"], topic, 1) == {(topic, 0): 200}
    assert_exact(there, 100)
    assert_exact(back, 100)


def test_partitions_that_the_source_gets_are_mirrored_from_their_start(
    stack: Stack, mirror: MirrorFactory, names: Names
) -> None:
    topic = names.unique("topic")
    stack.kafka["a"].create_topic(topic, partitions=1)
    km = mirror(topic, start="Latest")
    Feed(stack.kafka["a"].bootstrap, topic, [0], seed=SEED).write(50)  # before the mirror begins, at the end
    km.start()
    until(km.mirroring, "it mirrors")
    admin = AdminClient({"bootstrap.servers": stack.kafka["a"].bootstrap})
    for made in admin.create_partitions([NewPartitions(topic, 3)]).values():
        made.result()
    Feed(stack.kafka["a"].bootstrap, topic, range(3), seed=SEED).write(300)
    until(lambda: km.caught_up(ends(stack.kafka["a"], topic, 3)), "the new partitions are mirrored")
    assert_exact(km, 300)


def test_a_topic_that_is_created_again_stops_alone(stack: Stack, mirror: MirrorFactory, names: Names) -> None:
    topic, other = names.unique("topic"), names.unique("topic")
    admin = AdminClient({"bootstrap.servers": stack.kafka["a"].bootstrap})
    for each in (topic, other):
        stack.kafka["a"].create_topic(each, partitions=1)
        Feed(stack.kafka["a"].bootstrap, each, [0], seed=SEED).write(100)
    km = mirror(f"{topic}|{other}")
    km.start()
    until(lambda: sum(each.compared for each in km.audit()) == 200, "everything is mirrored, and positions are written")
    admin.delete_topics([topic])[topic].result()
    until(lambda: topic not in admin.list_topics(timeout=10).topics, "it is deleted")
    stack.kafka["a"].create_topic(topic, partitions=1)
    Feed(stack.kafka["a"].bootstrap, topic, [0], seed=SEED).write(150)
    until(lambda: (found := km.partition(topic, 0)) is not None and found.stopped != "", "it stops")
    found = km.partition(topic, 0)
    assert found is not None
    assert (found.stopped, found.position) == ("SourceTopicRecreated", 100)
    Feed(stack.kafka["a"].bootstrap, other, [0], seed=SEED).write(100)
    until(lambda: km.caught_up({(other, 0): 200}), "its neighbour continues")


@pytest.mark.parametrize("on_gap", ["Stop", "Skip"])
def test_what_retention_took_first_is_a_stop_or_counted(
    stack: Stack, mirror: MirrorFactory, names: Names, on_gap: str
) -> None:
    topic = names.unique("topic")
    stack.kafka["a"].create_topic(topic, partitions=1)
    feed = Feed(stack.kafka["a"].bootstrap, topic, [0], seed=SEED)
    feed.write(100)
    km = mirror(topic, onGap=on_gap)
    km.start()
    until(lambda: km.caught_up({(topic, 0): 100}), "everything is mirrored")
    assert km.terminate() == 0
    feed.write(100)
    admin = AdminClient({"bootstrap.servers": stack.kafka["a"].bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 130)]).values():
        deleted.result()
    km.start()
    if on_gap == "Skip":
        until(lambda: km.caught_up({(topic, 0): 200}), "it continues behind the gap")
        found = km.partition(topic, 0)
        assert found is not None
        assert (found.skipped, found.stopped) == (30, "")
        assert_exact(km, 70)
    else:
        until(lambda: (found := km.partition(topic, 0)) is not None and found.stopped != "", "it stops")
        found = km.partition(topic, 0)
        assert found is not None
        assert (found.stopped, found.position) == ("RetentionOvertook", 100)
        assert "30" in found.message


def test_a_record_that_the_target_refuses_stops_its_partition_alone(
    stack: Stack, mirror: MirrorFactory, names: Names
) -> None:
    topic, other = names.unique("topic"), names.unique("topic")
    for each in (topic, other):
        stack.kafka["a"].create_topic(each, partitions=1)
    stack.kafka["b"].create_topic(topic, partitions=1, config={"max.message.bytes": "10000"})
    producer = Producer({"bootstrap.servers": stack.kafka["a"].bootstrap})
    for value in (b"small", os.urandom(50_000), b"after"):
        producer.produce(topic, value, partition=0)
        producer.flush()
    km = mirror(f"{topic}|{other}", targetTopics={"interval": "1s", "sync": []})
    km.start()
    until(lambda: (found := km.partition(topic, 0)) is not None and found.stopped != "", "it stops")
    found = km.partition(topic, 0)
    assert found is not None
    assert found.stopped == "RecordRefused"
    assert found.position == 1
    Feed(stack.kafka["a"].bootstrap, other, [0], seed=SEED).write(100)
    until(lambda: km.caught_up({(other, 0): 100}), "its neighbour continues")
    copies = Consumer({"bootstrap.servers": stack.kafka["b"].bootstrap, "group.id": "x"})
    assert copies.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 1)
    copies.close()
