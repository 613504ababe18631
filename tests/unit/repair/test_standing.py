"""Which streams may be repaired: those that their next owner would continue, by what is committed now."""

from __future__ import annotations

from dataclasses import replace

from blockhouse.metadata.model import Metadata, Window
from blockhouse.streams import StreamId
from blockhouse_aggregator.commands.examined import Examined
from blockhouse_aggregator.protocol.takeover import Facts
from blockhouse_aggregator.repair.standing import why_not
from blockhouse_aggregator.runtime.stream.acceptance import decide

METADATA = Metadata("r1", 7, 0, "id", 0, 100, Window(reference=100))
FACTS = Facts(
    offset=100,
    metadata=METADATA,
    unreadable="",
    log_begin=0,
    log_end=120,
    topic_id="id",
    compacted=False,
    marker_topic_id="id",
    marker_seq=7,
    marker_position=100,
)


def refusal(facts: Facts, decision: str = "") -> str:
    return why_not(Examined(StreamId("a", "events", 0), facts, decision, decide(facts)))


def test_a_stream_that_continues_may_be_repaired() -> None:
    assert refusal(FACTS) == ""


def test_one_that_stands_still_may_not() -> None:
    """Its offsets went back, so that what is committed states less than what is in flight; or its topic is another."""
    assert "OffsetsWentBack" in refusal(replace(FACTS, marker_seq=8))
    assert "TopicRecreated" in refusal(replace(FACTS, topic_id="another"))


def test_one_of_which_nothing_is_committed_may_not() -> None:
    fresh = replace(FACTS, offset=None, metadata=None, marker_topic_id=None, marker_seq=-1, marker_position=-1)
    assert "nothing of it is committed" in refusal(fresh)


def test_one_that_an_operator_lets_begin_again_may_not_until_it_has() -> None:
    assert "is not carried out yet" in refusal(FACTS, "accept OffsetsReset from 10")
