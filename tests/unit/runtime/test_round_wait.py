"""Which blocks the next round waits for, and for how long."""

from __future__ import annotations

import pytest

from blockhouse_aggregator.runtime.stream.round_wait import LARGE_WAIT, RoundWait

SHARES = {"clicks": 0.5, "orders": 0.3, "payments": 0.2}
ALL, SMALL = frozenset(SHARES), frozenset({"orders", "payments"})


def waits_until(waiting: RoundWait, in_flight: frozenset[str]) -> float:
    """When the round begins if nothing else is stored, to a tenth of a second."""
    return next(tenth / 10 for tenth in range(200) if not waiting.continues(in_flight, waiting.since + tenth / 10))


def test_without_blocks_in_flight_nothing_is_waited_for() -> None:
    assert not RoundWait(SHARES, since=0.0).continues((), 0.0)
    assert not RoundWait({}, since=0.0).continues(("lagging",), 0.0), "it is not of the last round"


def test_most_of_a_round_is_waited_for_and_a_little_of_it_for_a_moment() -> None:
    assert waits_until(RoundWait(SHARES, since=0.0), ALL) == LARGE_WAIT
    assert waits_until(RoundWait(SHARES, since=0.0), frozenset({"payments"})) == 1.0


@pytest.mark.parametrize(("first", "until"), [(0.3, 1.0), (0.8, 1.6), (2.4, 4.8), (6.0, LARGE_WAIT)])
def test_where_inserts_are_slow_the_last_ones_are_waited_for_longer(first: float, until: float) -> None:
    """All at 2.4 s but for one at 2.6: a round without it would take its two seconds and three more."""
    waiting = RoundWait(SHARES, since=0.0)
    assert waiting.continues(ALL, first - 0.1)
    waiting.continues(SMALL, first)
    assert waits_until(waiting, SMALL) == pytest.approx(until)
