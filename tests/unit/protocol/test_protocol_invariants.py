"""Each invariant's check finds a violation of it: a check that accepts everything would guard nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.metadata.invariants import succession_violations, violations
from blockhouse.metadata.model import Metadata, TableEntry, Window
from blockhouse_aggregator.protocol.events import Insert
from blockhouse_aggregator.protocol.invariants import grant_violations
from tests.unit.protocol.given import A, B, C, fresh_stream, in_flight_stream, intent, metadata

GOOD = metadata(500, TableEntry(A, intent(450, 480)), TableEntry(B, cursor=470, pending=3))


def test_good_metadata_has_no_violation() -> None:
    assert violations(GOOD) == []
    assert succession_violations(None, GOOD) == []


BROKEN: dict[str, tuple[Metadata, str]] = {
    "a message too few": (replace(GOOD, window=replace(GOOD.window, holes=GOOD.window.holes + 1)), "I4"),
    "a table twice": (metadata(500, TableEntry(A, intent(450, 480)), TableEntry(A, intent(481, 482))), "I2"),
    "a block beyond P": (metadata(500, TableEntry(A, intent(450, 500))), "I5"),
    "a cursor beyond P": (metadata(500, TableEntry(A, cursor=501, pending=1)), "I5"),
    "a cursor inside the block": (metadata(500, TableEntry(A, intent(450, 480), cursor=480, pending=1)), "I3"),
    "pending without a cursor": (metadata(500, TableEntry(A, intent(450, 480), pending=1)), "I4"),
    "an entry that states nothing": (metadata(500, TableEntry(A)), "neither in flight nor lagging"),
    "an empty block": (metadata(500, TableEntry(A, intent(12, 11, 1))), "I5"),
    "more messages than offsets": (metadata(500, TableEntry(A, intent(12, 13, 5))), "I4"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_metadata_is_found(case: str) -> None:
    broken, word = BROKEN[case]
    assert any(word in text for text in violations(broken))


def successor(*entries: TableEntry, position: int = 520, seq: int = 8) -> Metadata:
    return metadata(position, *entries, seq=seq)


GOOD_NEXT = {
    "the same block still in flight": successor(TableEntry(A, intent(450, 480)), TableEntry(B, cursor=470, pending=3)),
    "A stored, then the next": successor(TableEntry(A, intent(500, 510)), TableEntry(B, cursor=470, pending=3)),
    "B resumed": successor(TableEntry(B, intent(470, 505))),
    "the window closed": replace(successor(seq=8), window=Window(reference=520)),
}


@pytest.mark.parametrize("case", GOOD_NEXT)
def test_a_good_successor_has_no_violation(case: str) -> None:
    assert violations(GOOD_NEXT[case]) == []
    assert succession_violations(GOOD, GOOD_NEXT[case]) == []


BAD_NEXT = {
    "a number skipped": (successor(seq=9), "I6"),
    "P went back": (successor(position=499), "I5"),
    "a block over what is stored": (successor(TableEntry(C, intent(499, 510))), "I3"),
    "another block over the one in flight": (successor(TableEntry(A, intent(450, 481))), "I3"),
    "a block below the cursor": (successor(TableEntry(B, intent(469, 505))), "I3"),
    "a cursor that fell": (successor(TableEntry(B, cursor=469, pending=3)), "I5"),
    "a new cursor below P": (successor(TableEntry(C, cursor=499, pending=3)), "I5"),
    "a count that fell": (replace(successor(), window=Window(0, sealed=100, holes=420)), "I4"),
    "a moved reference": (replace(successor(), window=Window(10, sealed=510)), "I4"),
    "a window closed over a block": (
        replace(successor(TableEntry(A, intent(500, 510))), window=Window(reference=520)),
        "I4",
    ),
}


@pytest.mark.parametrize("case", BAD_NEXT)
def test_a_bad_successor_is_found(case: str) -> None:
    bad, word = BAD_NEXT[case]
    assert any(word in text for text in succession_violations(GOOD, bad))


def test_a_grant_needs_exactly_its_committed_intent() -> None:
    state = in_flight_stream()
    assert grant_violations(state, [Insert(A, intent(100, 102, 2), fresh=True)]) == []
    assert grant_violations(state, [Insert(A, intent(100, 103, 2), fresh=True)])
    assert grant_violations(state, [Insert(C, intent(100, 102, 2), fresh=True)])
    assert grant_violations(fresh_stream(), [Insert(A, intent(100, 102, 2), fresh=True)])
