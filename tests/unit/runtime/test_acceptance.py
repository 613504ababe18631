"""Who accepted a stop, when and why is seen wherever the stream is seen afterwards."""

from __future__ import annotations

import pytest

from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import Decision, StreamMarker
from blockhouse_aggregator.protocol.takeover import Start, take_over
from blockhouse_aggregator.runtime.ports import StreamFacts
from blockhouse_aggregator.runtime.stream.acceptance import accepted, decision
from blockhouse_aggregator.runtime.stream.resumption import acceptance_of, facts_of

STREAM = StreamId("a", "events", 0)
MARKER = StreamMarker(topic_id="id", started_ms=0, replica="r1", seq=3, position=90)
FACTS = facts_of(StreamFacts(90, "", 10, 100, "id", compacted=False), MARKER)
AT = 1_764_057_600_000


def test_the_alarm_names_who_accepted_it_when_and_why() -> None:
    made = decision("OffsetsReset", 40, "ann", "all of it is stored", AT)
    start = take_over(accepted(FACTS, made), replica="r1", epoch=1, now_ms=0)
    assert isinstance(start, Start)
    assert start.state.position == 40
    assert acceptance_of(start) == (
        "OffsetsReset was accepted by ann at 2025-11-25T08:00:00Z (all of it is stored): starting afresh at offset 40"
    )


@pytest.mark.parametrize("action", ["recut 3 9", "accept OffsetsReset from somewhere", ""])
def test_a_decision_of_another_form_changes_nothing(action: str) -> None:
    assert accepted(FACTS, Decision(action=action, by="ann", at_ms=AT)) == FACTS


def test_a_decision_of_a_version_that_asked_for_no_reason_counts() -> None:
    facts = accepted(FACTS, Decision.model_validate_json('{"action": "accept OffsetsReset", "by": "ann", "at_ms": 0}'))
    assert (facts.accepted, facts.accepted_from, facts.accepted_by) == (
        "OffsetsReset",
        None,
        "ann at 1970-01-01T00:00:00Z",
    )
