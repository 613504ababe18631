"""Quiet hours, triggers, offending partitions and the count, by example."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from blockhouse.balance.count import CappedBy, Needed, TaskLimits, by_partitions, needed
from blockhouse.balance.model import Assignment
from blockhouse.balance.offending import offending
from blockhouse.balance.packing import giants
from blockhouse.balance.quiet import QuietHours
from blockhouse.balance.triggers import Cause, Look, RebalanceSettings, RebalanceState, decide, tasks_for
from blockhouse.placement.model import TopicPartition

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MB = 1e6
A, B, C, D = (TopicPartition("t", n) for n in range(4))
UNEVEN = Assignment({"task0": (A, B, C), "task1": (D,)})
EVEN_RATES = dict.fromkeys((A, B, C, D), MB)
SETTINGS = RebalanceSettings(on_lag=60, cooldown=900)


def look(seconds: float = 0, **options: object) -> Look:
    tasks = options.pop("tasks", list(UNEVEN))
    weights = options.pop("weights", EVEN_RATES)
    return Look(NOON + timedelta(seconds=seconds), weights, tasks, **options)  # type: ignore[arg-type]


def test_lag_moves_only_after_two_looks_and_only_if_it_helps() -> None:
    first, state = decide(UNEVEN, look(lags={A: 100}), SETTINGS, RebalanceState())
    assert first.causes == ()
    second, state = decide(UNEVEN, look(30, lags={A: 100}), SETTINGS, state)
    assert (second.causes, len(second.moved)) == ((Cause.LAG,), 1)
    assert state.moved_at == NOON + timedelta(seconds=30)


def test_a_lag_that_went_away_between_is_counted_again() -> None:
    state = RebalanceState()
    for seconds, lag in ((0, 100), (30, 0), (60, 100)):
        decision, state = decide(UNEVEN, look(seconds, lags={A: lag}), SETTINGS, state)
        assert decision.causes == ()


def test_late_partitions_that_no_assignment_helps_are_named() -> None:
    even = Assignment({"task0": (A, B), "task1": (C, D)})
    state = RebalanceState(late_looks={A: 1})
    decision, _ = decide(even, look(lags={A: 100}), SETTINGS, state)
    assert (decision.causes, decision.helpless) == ((), (A,))


def test_another_count_waits_for_nothing() -> None:
    state = RebalanceState(moved_at=NOON)
    decision, _ = decide(UNEVEN, look(tasks=["task0", "task1", "task2", "task3"]), SETTINGS, state)
    assert decision.causes == (Cause.COUNT,)
    assert sorted(map(len, decision.assignment.values())) == [1, 1, 1, 1]


def test_new_and_gone_partitions_wait_for_nothing_and_move_nothing() -> None:
    new = TopicPartition("new", 0)
    weights = {A: MB, B: MB, D: MB, new: 9 * MB}
    decision, state = decide(UNEVEN, look(weights=weights), SETTINGS, RebalanceState(moved_at=NOON))
    assert (decision.causes, decision.moved, state.moved_at) == ((Cause.PARTITIONS,), frozenset(), NOON)
    assert new in decision.assignment["task1"]


def test_tasks_keep_their_names_and_the_lightest_ends() -> None:
    weights = {A: 1.0, B: 1.0, C: 1.0, D: 5.0}
    assert tasks_for(UNEVEN, weights, 1) == ["task1"]
    assert tasks_for(UNEVEN, weights, 3) == ["task0", "task1", "task2"]
    assert tasks_for(Assignment({"task1": ()}), {}, 2) == ["task1", "task0"]


@pytest.mark.parametrize(
    ("text", "moment", "quiet"),
    [
        ("02:00-05:00 UTC", datetime(2026, 1, 1, 2, tzinfo=UTC), True),
        ("02:00-05:00", datetime(2026, 1, 1, 5, tzinfo=UTC), False),
        ("22:00-04:00 UTC", datetime(2026, 1, 1, 23, tzinfo=UTC), True),
        ("22:00-04:00 UTC", datetime(2026, 1, 1, 3, 59, tzinfo=UTC), True),
        ("22:00-04:00 UTC", datetime(2026, 1, 1, 12, tzinfo=UTC), False),
        ("02:00-05:00 America/New_York", datetime(2026, 1, 1, 8, tzinfo=UTC), True),
        ("02:00-05:00 America/New_York", datetime(2026, 7, 1, 9, tzinfo=UTC), False),
    ],
)
def test_quiet_hours_know_zones_and_midnight(text: str, moment: datetime, quiet: bool) -> None:
    assert QuietHours.parse(text).contain(moment) is quiet


@pytest.mark.parametrize("text", ["", "2-5", "25:00-26:00", "02:00-05:00 Nowhere/Else", "02:00-02:00"])
def test_what_is_no_quiet_time_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"^'"):
        QuietHours.parse(text)


def test_the_worked_example_of_the_count() -> None:
    """10 MB/s a task of which 70 % are planned: 30 MB/s of small partitions take 5 tasks."""
    weights = {TopicPartition("t", n): 0.3 * MB for n in range(100)}
    assert needed(weights, TaskLimits(10 * MB, 0.7, most=32)) == Needed(5)
    assert needed(weights, TaskLimits(10 * MB, 0.7, most=4)) == Needed(4, CappedBy.MAX)
    assert needed(weights, TaskLimits(10 * MB, 0.7, fewest=8)) == Needed(8, CappedBy.MIN)
    assert needed(weights, TaskLimits(10 * MB, 0.7, most_partitions=10, most=32)) == Needed(10)
    assert needed({}, TaskLimits(10 * MB)) == Needed(1)
    assert by_partitions(1001, 500) == 3


def test_the_count_is_raised_until_the_parts_fit() -> None:
    """Six of 4 MB/s are 24 of 7 usable: four tasks by the sum, but two do not fit into one."""
    weights = {TopicPartition("t", n): 4 * MB for n in range(6)}
    assert needed(weights, TaskLimits(10 * MB, 0.7)) == Needed(6)


def test_a_giant_is_named_and_does_not_raise_the_count() -> None:
    weights = {A: 100 * MB, B: MB, C: MB, D: MB}
    assert giants(weights, 4, 0.1) == [A]
    assert needed(weights, TaskLimits(10 * MB, 0.7)) == Needed(2)


def test_offending_partitions_come_with_advice() -> None:
    keys = [TopicPartition("skewed", n) for n in range(10)]
    weights = dict.fromkeys(keys, 0.1 * MB) | {keys[0]: 9 * MB, A: 8 * MB, C: MB}
    assignment = Assignment({"task0": (keys[0], *keys[1:]), "task1": (A,), "task2": (C,)})
    found = offending(assignment, weights, TaskLimits(10 * MB, 0.7), late=[C, keys[1]])
    assert [(some.partition, round(some.share, 2)) for some in found] == [(keys[0], 1.29), (A, 1.14), (C, 0.14)]
    assert "choose a key" in found[0].advice
    assert "at least 2 partitions" in found[1].advice
    assert "its task has nothing else" in found[2].advice
