"""Whose rows may answer for a block: those of its own topic, and rows that name none while there was no other topic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.metadata.model import InFlight
from blockhouse.schema.history import extend, first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.clickhouse.presence import Origin
from blockhouse_aggregator.coordination.markers import StreamMarker
from blockhouse_aggregator.protocol.takeover import Facts, Start, Stop, take_over
from blockhouse_aggregator.runtime.ports import StreamFacts
from blockhouse_aggregator.runtime.stream.block import BlockToStore
from blockhouse_aggregator.runtime.stream.resumption import facts_of, sole_topic
from tests.unit.runtime.test_storing import TABLE

OFFSET = ServerColumn(name="_kafka_offset", type="UInt64")
OLD = TableHistory(id=1, name="default.t", revisions=(first_revision([OFFSET]),))
NEW = extend(OLD, [OFFSET, ServerColumn(name="_kafka_topic", type="String")])
MARKER = StreamMarker(topic_id="one", started_ms=0, replica="r")


def facts(marker: StreamMarker | None, topic_id: str, *, accepted: str = "") -> Facts:
    return replace(facts_of(StreamFacts(None, "", 0, 100, topic_id, compacted=False), marker), accepted=accepted)


def decision(of: Facts) -> Start | Stop:
    found = take_over(of, replica="r", epoch=1, now_ms=0)
    assert isinstance(found, Start | Stop)
    return found


def test_a_marker_remembers_every_topic_there_was() -> None:
    second = MARKER.followed_by(MARKER.model_copy(update={"topic_id": "two", "seq": 3}))
    assert (second.topic_id, second.seq, second.former) == ("two", 3, ("one",))
    assert second.followed_by(MARKER.model_copy(update={"topic_id": "three"})).former == ("one", "two")
    assert second.followed_by(MARKER.model_copy(update={"topic_id": "two"})).former == ("one",)


@pytest.mark.parametrize(
    ("marker", "topic_id", "accepted", "sole"),
    [
        (None, "one", "", True),
        (MARKER, "one", "OffsetsExpired", True),
        (MARKER, "two", "TopicRecreated", False),
        (MARKER.model_copy(update={"former": ("zero",)}), "one", "OffsetsExpired", False),
        (MARKER.model_copy(update={"former": ("",)}), "one", "OffsetsExpired", False),
    ],
)
def test_rows_without_a_topic_are_the_streams_while_it_has_had_one(
    marker: StreamMarker | None, topic_id: str, accepted: str, sole: bool
) -> None:
    found = facts(marker, topic_id, accepted=accepted)
    assert sole_topic(found, decision(found)) is sole


def test_a_marker_that_was_lost_may_have_named_others() -> None:
    known = StreamFacts(700, "garbage", 0, 1000, "one", compacted=False)
    found = replace(facts_of(known, None), accepted="MetadataUnreadable", accepted_from=700)
    assert not sole_topic(found, decision(found))


def test_a_block_is_found_by_what_its_revision_holds() -> None:
    old, new = NEW.revisions
    intent = InFlight(begin=10, end=19, messages=10, revision=2, crc=7, intent_ms=0)
    block = BlockToStore(StreamId("a", "events", 0), "id", TABLE, intent, new, fresh=False)
    assert block.origin == Origin("a", 0, "events/id", sole=True)
    assert replace(block, revision=old, sole=False).origin == Origin("a", 0, "", sole=False)
