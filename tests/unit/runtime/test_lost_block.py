"""A block whose messages have left the log: what an answer of provenance means for it."""

from __future__ import annotations

import pytest

from blockhouse_aggregator.runtime.stream.outcomes import (
    Absent,
    CannotTell,
    Condemned,
    Partial,
    Provenance,
    Stored,
    TryAgain,
    Whole,
)
from blockhouse_aggregator.runtime.stream.provenance import without_bytes

REASON = "ReplayRangeExpired"


def test_a_block_that_is_whole_is_acknowledged() -> None:
    assert without_bytes(Whole(), REASON) == Stored(by_provenance=True)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Absent(), "none of its messages"),
        (Partial(messages=4, expected=10, rows=8), "4 of 10 messages"),
        (CannotTell("no such columns", after=None), "no such columns"),
    ],
    ids=["absent", "partial", "never known"],
)
def test_a_block_that_is_not_proved_whole_is_blocked_for_the_reason_it_was_lost(found: Provenance, text: str) -> None:
    outcome = without_bytes(found, REASON)

    assert isinstance(outcome, Condemned)
    assert outcome.reason == REASON
    assert text in outcome.message


def test_what_is_not_known_yet_is_asked_again() -> None:
    assert without_bytes(CannotTell("a quorum is pending", after=1.0), REASON) == TryAgain("a quorum is pending", 1.0)
