"""Lateness: since when something waits, by where the log ended at known moments."""

from __future__ import annotations

from blockhouse_mirror.protocol.lag import KEPT, Lateness


def test_nothing_is_known_at_first() -> None:
    lateness = Lateness()

    assert (lateness.seconds(100.0), lateness.records(), lateness.end) == (0.0, 0, -1)


def test_it_is_late_since_the_log_was_first_seen_to_end_behind_the_position() -> None:
    lateness = Lateness()
    lateness.reached(10)
    lateness.seen(100.0, 10)
    assert lateness.seconds(200.0) == 0.0

    lateness.seen(110.0, 15)
    lateness.seen(120.0, 20)
    assert (lateness.seconds(130.0), lateness.records()) == (20.0, 10)

    lateness.reached(15)
    assert (lateness.seconds(130.0), lateness.records()) == (10.0, 5)

    lateness.reached(20)
    assert (lateness.seconds(130.0), lateness.records(), lateness.end) == (0.0, 0, 20)


def test_an_end_that_is_seen_again_does_not_make_it_young() -> None:
    lateness = Lateness()
    lateness.reached(0)
    for now in range(0, 100, 10):
        lateness.seen(float(now), 5)

    assert lateness.seconds(100.0) == 100.0


def test_a_clock_that_went_back_makes_nothing_negative() -> None:
    lateness = Lateness()
    lateness.reached(0)
    lateness.seen(100.0, 5)

    assert lateness.seconds(50.0) == 0.0


def test_a_partition_that_stands_still_for_long_keeps_the_moment_it_began_and_little_else() -> None:
    lateness = Lateness()
    lateness.reached(0)
    for now in range(10_000):
        lateness.seen(float(now), now + 1)

    assert lateness.seconds(10_000.0) == 10_000.0
    assert lateness.records() == 10_000
    assert len(lateness._ends) <= KEPT
