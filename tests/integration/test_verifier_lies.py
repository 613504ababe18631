"""Histories that keep every rule among themselves and lie about the log: what only the cluster itself can contradict.

Each is committed to real Kafka and judged as `blockhouse verify` does it; beside it stands the same claim made truly.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from blockhouse.config.verifier import VerifierConfig
from blockhouse.metadata.model import Metadata, Window
from blockhouse_aggregator.verifier.anomaly import Anomaly
from blockhouse_aggregator.verifier.past import CouldNotLook, verify
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.conftest import Names, TopicFactory
from tests.integration.verifier_rogue import Rogue, block, config, sound, topic_id

pytestmark = pytest.mark.integration
Findings = list[tuple[str, int | None, int | None]]


@pytest.fixture
def rogue(stack: Stack, names: Names, topic: TopicFactory) -> Iterator[Rogue]:
    with closing(Rogue(stack, "a", topic(1), names.group)) as made:
        yield made


def judged(stack: Stack, names: Names, rogue: Rogue, **more: object) -> Findings:
    """(kind, first, last) of everything the verifier reports of what was committed until now."""
    settings = VerifierConfig.model_validate(config(stack, names, rogue.topic, 0, **more))
    found: tuple[Anomaly, ...] = verify(settings).anomalies
    return [(str(a.finding.kind), a.finding.first, a.finding.last) for a in found]


def begun_at(rogue: Rogue, first: int) -> Metadata:
    """The first commit of a stream that begins at `first` with a block of ten."""
    return Metadata("r1", 1, 1_000, rogue.topic_id, 0, first + 10, Window(first, 10), (block(1, first, first + 9, 10),))


def test_a_stream_that_begins_above_the_begin_of_its_log(stack: Stack, names: Names, rogue: Rogue) -> None:
    rogue.produce(60)
    rogue.owner(begun_at(rogue, 20))

    assert judged(stack, names, rogue) == [("gap", 0, 19)]

    admin = AdminClient({"bootstrap.servers": stack.kafka["a"].bootstrap})
    at = TopicPartition(rogue.topic, 0, 20)
    admin.delete_records([at])[at].result(60)
    assert judged(stack, names, rogue) == [], "retention has taken what lies below"


def test_a_stream_that_begins_where_a_tool_has_set_it(stack: Stack, names: Names, rogue: Rogue) -> None:
    rogue.produce(60)
    rogue.commit(20, "")
    rogue.owner(begun_at(rogue, 20))

    assert judged(stack, names, rogue) == []


def test_messages_that_are_passed_off_as_holes(stack: Stack, names: Names, rogue: Rogue) -> None:
    last = sound(rogue)
    passed = replace(last, seq=4, position=50, window=replace(last.window, holes=10), tables=last.tables[1:])
    rogue.owner(passed)

    assert judged(stack, names, rogue) == [("gap", 35, 49)]


def test_holes_that_are_there(stack: Stack, names: Names, rogue: Rogue) -> None:
    producer = Producer({"bootstrap.servers": stack.kafka["a"].bootstrap, "transactional.id": names.unique("id")})
    producer.init_transactions(20)
    for commit in (True, False):  # 5 messages and a marker; 5 that no reader gets, and a marker
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(rogue.topic, b"x", partition=0)
        if commit:
            producer.commit_transaction(20)
        else:
            producer.flush(20)
            producer.abort_transaction(20)
    true = Metadata("r1", 1, 1_000, rogue.topic_id, 0, 12, Window(0, 5, holes=7), (block(1, 0, 4, 5),))
    rogue.owner(true)
    assert judged(stack, names, rogue) == []

    rogue.produce(5)
    window = replace(true.window, sealed=8, holes=9)
    rogue.owner(replace(true, seq=2, position=17, window=window, tables=(block(1, 12, 14, 3),)))
    assert judged(stack, names, rogue) == [("gap", 0, 16)]


def test_holes_in_a_range_that_is_too_long_to_read_are_counted(stack: Stack, names: Names, rogue: Rogue) -> None:
    rogue.produce(20)
    rogue.owner(Metadata("r1", 1, 1_000, rogue.topic_id, 0, 20, Window(0, 10, holes=10), (block(1, 0, 9, 10),)))
    settings = VerifierConfig.model_validate(config(stack, names, rogue.topic, 0, holeCheck=19))

    report = verify(settings)

    assert (report.verdict == "clean", report.to_json({})["coverage"]["a"]["unchecked"]) == (True, 1)


def test_a_commit_that_is_lost_among_missing_records_of_others(stack: Stack, names: Names, rogue: Rogue) -> None:
    last = sound(rogue)
    partition, partitions = _home(stack, names.group)
    other = next(g for g in map(names.unique, ["other"] * 100_000) if _java_hash(g) % partitions == partition)
    producer = Producer({"bootstrap.servers": stack.kafka["a"].bootstrap, "transactional.id": names.unique("id")})
    producer.init_transactions(20)
    settings = {"bootstrap.servers": stack.kafka["a"].bootstrap, "group.id": other}
    with closing(Consumer(settings)) as consumer:
        for _ in range(3):  # what another group commits in a transaction leaves its marker: a record that is missing
            producer.begin_transaction()
            at = [TopicPartition(rogue.topic, 0, 1)]
            producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), 20)
            producer.commit_transaction(20)

    rogue.owner(replace(last, seq=5))

    assert judged(stack, names, rogue) == [("order", 40, 40)]


def test_a_log_that_was_cut_and_written_again(stack: Stack, names: Names, rogue: Rogue) -> None:
    """As after a power loss that took the page cache: of 90 messages 60 are left, and others follow them."""
    (broker,) = stack.kafka["a"].brokers
    (segment,) = Path(broker.folder, "data", f"{rogue.topic}-0").glob("*0.log")
    rogue.produce(60)
    size = segment.stat().st_size
    rogue.produce(30)
    rogue.owner(Metadata("r1", 1, 1_000, rogue.topic_id, 0, 90, Window(0, 90), (block(1, 0, 89, 90),)))
    assert judged(stack, names, rogue) == []

    broker.kill()
    os.truncate(segment, size)
    broker.start()
    rogue.produce(60)

    assert judged(stack, names, rogue) == [("truncated", 0, 89)]
    window = Window(0, 120)
    rogue.owner(Metadata("r1", 2, 1_000, rogue.topic_id, 1, 120, window, (block(1, 90, 119, 30),)))
    assert judged(stack, names, rogue) == [("truncated", 0, 89)], "the commit before shows it, whatever follows"


def test_an_election_alone_cuts_nothing(stack: Stack, names: Names, rogue: Rogue) -> None:
    sound(rogue)
    (broker,) = stack.kafka["a"].brokers
    broker.kill()
    broker.start()
    rogue.produce(1)

    assert judged(stack, names, rogue) == []


def test_a_topic_that_was_created_again_and_is_not_read(stack: Stack, names: Names, rogue: Rogue) -> None:
    last = sound(rogue)
    admin = AdminClient({"bootstrap.servers": stack.kafka["a"].bootstrap})
    admin.delete_topics([rogue.topic])[rogue.topic].result(60)
    assert wait_until(lambda: rogue.topic not in admin.list_topics(timeout=5).topics, timeout=60)
    stack.kafka["a"].create_topic(rogue.topic, partitions=1)
    assert topic_id(stack, rogue.topic) != last.topic_id
    assert judged(stack, names, rogue) == [], "it holds nothing that anybody could have missed"

    rogue.produce(120)
    window = replace(last.window, sealed=118)
    rogue.owner(replace(last, seq=4, position=120, window=window, tables=(block(1, 40, 119, 80), last.tables[1])))

    assert judged(stack, names, rogue) == [("other-topic", 0, 119)]


def test_a_group_that_does_not_exist_is_an_error(stack: Stack, names: Names, rogue: Rogue) -> None:
    sound(rogue)

    with pytest.raises(CouldNotLook, match="no commit of a group 'evnets-\\*'"):
        judged(stack, names, rogue, groups=[names.group, "evnets-*"])


def _java_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return abs(value - (1 << 32) if value >= 1 << 31 else value)


def _home(stack: Stack, group: str) -> tuple[int, int]:
    """The partition of the offsets topic in which a group's commits lie, and how many there are."""
    admin = AdminClient({"bootstrap.servers": stack.kafka["a"].bootstrap})
    partitions = len(admin.list_topics("__consumer_offsets", timeout=60).topics["__consumer_offsets"].partitions)
    return _java_hash(group) % partitions, partitions
