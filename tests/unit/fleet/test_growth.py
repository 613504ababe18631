"""Writes, copies and what is left, from two looks into log directories."""

from __future__ import annotations

from blockhouse.fleet.growth import Sized, growth
from blockhouse.fleet.model import ReplicaLog, Storage
from blockhouse.placement.model import TopicPartition
from blockhouse.throttle.model import MoveSeen

KEY = TopicPartition("t", 0)
MOVE = {KEY: MoveSeen((1, 2, 3), frozenset({3}), 1, frozenset({1, 2}))}


def sized(at: float, **sizes: float) -> Sized:
    """Sizes by broker: `b1=100`."""
    return Sized(at, Storage({}, {}, {(KEY, int(name[1:])): ReplicaLog(size, 0) for name, size in sizes.items()}))


def test_writes_are_the_growth_of_the_leader_and_copies_that_of_the_arriving() -> None:
    found = growth(MOVE, sized(10, b1=1000, b2=1000, b3=100), sized(20, b1=1200, b2=1200, b3=600))
    assert found.written == {KEY: 20.0}
    assert found.copied == {(KEY, 3): 50.0}
    assert found.remaining == {(KEY, 3): 600.0}


def test_a_first_look_knows_only_what_is_left() -> None:
    found = growth(MOVE, None, sized(20, b1=1200, b3=200))
    assert (found.written, found.copied, found.remaining) == ({}, {}, {(KEY, 3): 1000.0})


def test_a_log_that_became_smaller_or_is_new_has_no_rate() -> None:
    found = growth(MOVE, sized(10, b1=1000), sized(20, b1=400, b3=300))
    assert (found.written, found.copied) == ({}, {})
    assert found.remaining == {(KEY, 3): 100.0}
    assert growth(MOVE, sized(10, b1=1), sized(10, b1=5)).written == {}, "no time has passed"


def test_without_a_leader_nothing_is_known_to_be_left() -> None:
    move = {KEY: MoveSeen((1, 2, 3), frozenset({3}), None, frozenset({2}))}
    assert growth(move, None, sized(20, b1=1200, b3=200)).remaining == {}
