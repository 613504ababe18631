"""Versions 0 and 1: the rules that were published for the original, on the examples they came with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.metadata import codec
from blockhouse_aggregator.verifier.checks.sequence import Known, Lacking, judge
from tests.unit.verifier.given import FIRST


def judged(*texts: tuple[int, str]) -> list[tuple[str, str | None, int | None, int | None]]:
    """What the last of some commits is found guilty of."""
    known: Known | None = None
    found: list[tuple[str, str | None, int | None, int | None]] = []
    for offset, text in texts:
        result = judge(known, offset, text, Lacking(0))
        known = result.known
        found = [(str(f.kind), f.table, f.first, f.last) for f in result.findings]
    return found


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ((10, "1,,r1,A,10,19,10,B,20,19,10,,0"), []),  # the same again
        ((20, "1,,r2,A,20,29,20,B,20,19,10,,0"), []),  # the next block
        ((20, "1,,r2,A,20,19,10,B,20,19,10,,0"), []),  # acknowledged
        ((5, "1,,r2,A,5,9,10,B,20,19,10,,0"), [("backward", "A", 5, 9)]),
        ((15, "1,,r2,A,15,25,10,B,20,19,10,,0"), [("overlap", "A", 15, 19)]),
        ((40, "1,,r2,A,40,49,20,B,40,39,10,,0"), [("gap", None, 20, 39)]),
    ],
)
def test_version_1(after: tuple[int, str], found: list[object]) -> None:
    assert judged((10, "1,,r1,A,10,19,10,B,20,19,10,,0"), after) == found


def test_version_0_has_no_counts_hence_no_gap() -> None:
    assert judged((10, "A,10,19"), (15, "A,15,25")) == [("overlap", "A", 15, 19)]
    assert judged((10, "A,10,19"), (90, "A,90,95")) == []


def test_a_takeover_by_version_2_may_not_begin_before_what_was_stored() -> None:
    text = codec.encode(FIRST)

    assert judged((0, "1,,r1,A,0,9,10,,0"), (0, text)) == []
    assert judged((5, "1,,r1,A,5,9,10,,0"), (0, text)) == [("backward", None, 0, 4)]


def test_a_stream_at_rest_may_be_handed_back_exactly_where_it_stands() -> None:
    moving, resting = codec.encode(FIRST), codec.encode(replace(FIRST, seq=2, tables=()))

    assert judged((10, resting), (10, "1,,r1,A,10,9,0,B,12,11,0,,-1")) == []
    assert judged((0, moving), (10, "1,,r1,A,10,9,10,,0")) == [("foreign", None, 10, 10)]
    assert judged((10, resting), (10, "1,,r1,A,10,19,10,,0")) == [("foreign", None, 10, 10)]
    assert judged((10, resting), (4, "1,,r1,A,4,3,0,,-1")) == [("backward", None, 4, 9)]
    assert judged((10, resting), (15, "1,,r1,A,15,14,0,,-1")) == [("gap", None, 10, 14)]
