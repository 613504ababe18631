"""What the driver knows of partitions: what came, went, was created again, and what is still to be written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.kafka.topics import Discovery, MirroredTopic
from blockhouse_mirror.protocol.position import Position
from blockhouse_mirror.protocol.takeover import Reason, Stop
from blockhouse_mirror.runtime.partitions import Partition, Partitions

TOPIC = MirroredTopic("t", "t-id", 2, "x.t", "u-id")
POSITION = Position("S", "t-id", 0, 5, -1, "u-id", 7)
KEY, TARGET = Key("t", 0), Key("x.t", 0)


def discovery(*topics: MirroredTopic) -> Discovery:
    return Discovery("S", "T", topics)


@pytest.fixture
def partitions() -> Partitions:
    made = Partitions()
    made.seen(discovery(TOPIC))
    return made


def get(partitions: Partitions, key: Key = KEY) -> Partition:
    found = partitions.get(key)
    assert found is not None
    return found


def test_new_and_gone_partitions_are_named_once(partitions: Partitions) -> None:
    new, gone = partitions.seen(discovery(replace(TOPIC, partitions=3), replace(TOPIC, name="s", target="x.s")))
    assert sorted(each.key for each in new) == [Key("s", 0), Key("s", 1), Key("t", 2)]
    assert gone == []

    new, gone = partitions.seen(discovery(replace(TOPIC, partitions=3)))
    assert new == []
    assert sorted(each.key for each in gone) == [Key("s", 0), Key("s", 1)]
    assert len(partitions) == 3


def test_the_target_has_its_own_name(partitions: Partitions) -> None:
    assert get(partitions).target == TARGET


def test_what_is_known_of_a_partition_outlives_a_look(partitions: Partitions) -> None:
    partitions.moved(KEY, POSITION)
    partitions.seen(discovery(TOPIC))

    assert get(partitions).position == POSITION


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (replace(TOPIC, topic_id="t-2"), Reason.SOURCE_RECREATED),
        (replace(TOPIC, target_id="u-2"), Reason.TARGET_RECREATED),
    ],
)
def test_a_topic_that_was_created_again_stops(partitions: Partitions, topic: MirroredTopic, reason: Reason) -> None:
    partitions.moved(KEY, POSITION)

    partitions.seen(discovery(topic))

    stop = get(partitions).stop
    assert stop is not None
    assert stop.reason is reason
    assert get(partitions, Key("t", 1)).stop is None, "it has no position yet: nothing was mirrored"


def test_the_first_reason_stays(partitions: Partitions) -> None:
    partitions.moved(KEY, POSITION)
    get(partitions).stop = first = Stop(Reason.REFUSED, "m")

    partitions.seen(discovery(replace(TOPIC, topic_id="t-2")))

    assert get(partitions).stop is first


def test_a_position_is_written_once_by_its_partition_of_the_target(partitions: Partitions) -> None:
    partitions.moved(KEY, POSITION)

    assert dict(partitions.unwritten()) == {TARGET: POSITION}
    assert dict(partitions.unwritten()) == {}

    partitions.moved(KEY, POSITION)
    assert dict(partitions.unwritten()) == {}, "the same is not written again"


def test_a_position_whose_writing_failed_is_written_again_as_it_is_then(partitions: Partitions) -> None:
    partitions.moved(KEY, POSITION)
    failed = partitions.unwritten()
    further = replace(POSITION, offset=6)
    partitions.moved(KEY, further)

    partitions.not_written(failed)

    assert dict(partitions.unwritten()) == {TARGET: further}


def test_nothing_is_written_for_a_partition_that_is_gone(partitions: Partitions) -> None:
    partitions.moved(KEY, POSITION)
    failed = partitions.unwritten()
    partitions.moved(KEY, replace(POSITION, offset=6))
    partitions.seen(discovery())
    partitions.not_written(failed)
    partitions.moved(KEY, POSITION)

    assert dict(partitions.unwritten()) == {}


def test_a_position_makes_it_less_late(partitions: Partitions) -> None:
    get(partitions).lateness.seen(10.0, 5)
    assert get(partitions).lateness.seconds(20.0) == 10.0

    partitions.moved(KEY, POSITION)

    assert get(partitions).lateness.seconds(20.0) == 0.0


def test_counts_of_a_grant_are_added_once_however_often_they_are_reported(partitions: Partitions) -> None:
    partition = get(partitions)
    for report in ((1, 3, 30, 0, 1), (1, 5, 50, 1, 1), (1, 5, 50, 1, 1), (2, 2, 20, 0, 0), (2, 4, 40, 2, 4)):
        partition.count(*report)

    assert (partition.records, partition.bytes, partition.left_out, partition.letters) == (9, 90, 3, 5)
