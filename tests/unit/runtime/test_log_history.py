"""The age of what is not stored, and rates, by samples of a log's end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockhouse_aggregator.runtime.process.log_history import MOST, LogHistory, Passed


def test_the_age_counts_from_when_the_end_passed_the_oldest_message_that_is_not_stored() -> None:
    history = LogHistory()
    for at, end in ((0.0, 100), (2.0, 100), (4.0, 150), (6.0, 300)):
        history.add(at, end, 0)
    history.seed([])

    assert history.age(299, 10.0) == 4
    assert history.age(149, 10.0) == 6
    assert history.age(100, 10.0) == 6, "the message at 100 was not there at 2 s"
    assert history.age(99, 10.0) == 10


def test_a_message_that_came_after_the_last_sample_is_at_most_as_old_as_that() -> None:
    """The task has read further than the brokers answered: an age of 0 would stay 0 for as long as they are silent."""
    history = LogHistory()
    history.add(0.0, 100, 0)
    history.add(2.0, 100, 0)

    assert history.age(100, 3.0) == 1
    assert history.age(100, 30.0) == 28


def test_the_age_of_what_was_there_before_is_not_known_until_the_brokers_are_asked_for_it() -> None:
    """A stream that was taken over with five messages waiting would be 0 s behind."""
    history = LogHistory()
    history.add(1000.0, 100, 5)
    assert history.age(95, 1000.0) is None

    history.add(1002.0, 110, 15)
    assert history.age(100, 1003.0) == 1, "it came later"
    history.seed([Passed(985.0, 94), Passed(995.0, 97)])
    assert history.age(95, 1003.0) == 8


def test_before_the_first_sample_nothing_is_known() -> None:
    history = LogHistory()
    assert (history.age(0, 1.0), history.arriving, history.storing) == (None, None, None)
    assert history.catching_up(0) == 0
    assert history.catching_up(5) is None


def test_what_the_brokers_know_of_before_makes_the_age_of_old_messages_true() -> None:
    history = LogHistory()
    history.add(1000.0, 100, 60)
    history.seed([Passed(0.0, 40), Passed(900.0, 50), Passed(990.0, 100)])

    assert history.seeded
    assert history.age(40, 1000.0) == 100
    assert history.age(99, 1000.0) == 10
    assert history.age(10, 1000.0) == 1000


def test_times_of_messages_that_contradict_the_log_are_left_out() -> None:
    history = LogHistory()
    history.add(1000.0, 100, 60)
    history.seed([Passed(0.0, 90), Passed(900.0, 50), Passed(2000.0, 60), Passed(990.0, 101)])

    assert history.age(40, 1000.0) == 100


def test_rates_are_of_the_last_minute_and_stored_messages_are_what_came_less_what_is_left() -> None:
    history = LogHistory()
    history.add(0.0, 0, 0)
    history.add(10.0, 1000, 500)
    history.add(20.0, 2000, 1000)

    assert history.arriving == 100
    assert history.storing == 50
    assert history.catching_up(1000) == 20
    for second in range(30, 120, 10):
        history.add(float(second), 2000, 1000)
    assert (history.arriving, history.storing) == (0, 0)
    assert history.catching_up(1000) is None


def test_a_log_that_ends_lower_is_another_one() -> None:
    history = LogHistory()
    history.add(0.0, 1000, 0)
    history.add(10.0, 5, 5)

    history.seed([])
    assert history.age(0, 11.0) == 1


@given(st.lists(st.integers(1, 100), min_size=1, max_size=3 * MOST))
def test_it_never_grows_and_an_age_is_off_by_a_small_part_at_most(steps: list[int]) -> None:
    history, end, passed = LogHistory(), 0, []
    for second, step in enumerate(steps):
        end += step
        passed.append((second, end))
        history.add(float(second), end, 0)
    history.seed([])
    now = float(len(steps))

    for stored in range(0, end, max(1, end // 20)):
        true = next(now - second for second, reached in passed if reached > stored)
        found = history.age(stored, now)
        assert found is not None
        assert found == pytest.approx(true, rel=0.2, abs=1)
