"""What holds for every assignment: nothing is lost, only what the tolerance needs moves, and the count is patient."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockhouse.balance.count import (
    LOW_WINDOWS,
    CappedBy,
    CountState,
    Needed,
    TaskLimits,
    by_load,
    needed,
    scaled,
)
from blockhouse.balance.model import Assignment, NotEnoughRoom, quality
from blockhouse.balance.packing import by_count, giants, place, repack
from blockhouse.balance.sticky import renew, step
from blockhouse.balance.triggers import tasks_for
from blockhouse.placement.model import TopicPartition
from tests.property.balancing import SLACK, Weights, allowed, assigned, keyed, names, rates, tolerances


@given(assigned(), tolerances, st.integers(0, 60))
def test_a_step_loses_and_doubles_nothing_and_obeys_its_bound(
    given: tuple[Assignment, Weights], tolerance: float, moves: int
) -> None:
    before, weights = given
    after = step(before, weights, tolerance, moves=moves)
    assert after.partitions() == weights.keys()
    assert list(after) == list(before)
    assert len(after.moved_from(before)) <= moves


@given(assigned(), tolerances)
def test_a_step_never_makes_the_heaviest_task_heavier(given: tuple[Assignment, Weights], tolerance: float) -> None:
    before, weights = given
    heaviest = quality(step(before, weights, tolerance), weights).heaviest
    assert heaviest <= quality(before, weights).heaviest * SLACK


@given(assigned(), tolerances)
def test_each_move_helps_most_where_few_are_allowed(given: tuple[Assignment, Weights], tolerance: float) -> None:
    """A further move never makes the heaviest task heavier than it is without."""
    before, weights = given
    steps = [step(before, weights, tolerance, moves=moves) for moves in range(len(weights))]
    heaviest = [quality(each, weights).heaviest for each in steps]
    assert all(later <= former * SLACK for former, later in pairwise(heaviest))


def test_overloaded_tasks_take_turns_to_give() -> None:
    """Two tasks with six alike, two idle ones: of two moves each gives one, so that neither is left behind."""
    keys = [TopicPartition("t", n) for n in range(12)]
    before = Assignment({"task0": keys[:6], "task1": keys[6:], "task2": (), "task3": ()})
    after = step(before, dict.fromkeys(keys, 1e6), 0.10, moves=2)
    assert [len(after[f"task{n}"]) for n in range(2)] == [5, 5]


@given(assigned(), tolerances)
def test_only_overloaded_tasks_give_and_none_more_than_it_must(
    given: tuple[Assignment, Weights], tolerance: float
) -> None:
    """A task that gave was above the limit, or shared with a giant; with its largest gift back it would be again."""
    before, weights = given
    after = step(before, weights, tolerance)
    most, alone = allowed(weights, len(before), tolerance), set(giants(weights, len(before), tolerance))
    loads, now = before.loads(weights), after.loads(weights)
    owners = before.owners()
    for task in {owners[key] for key in after.moved_from(before)}:
        released = [weights[key] for key in before[task] if key not in after[task]]
        if not alone & set(before[task]):
            assert loads[task] * SLACK > most
            assert (now[task] + max(released)) * SLACK > most


@given(assigned(), tolerances)
def test_within_the_tolerance_nothing_moves(given: tuple[Assignment, Weights], tolerance: float) -> None:
    """And steps come to an end, also where the tolerance cannot be reached: each makes the tasks more even."""
    current, weights = given
    for _ in range(10):
        after = step(current, weights, tolerance)
        if quality(current, weights).heaviest <= allowed(weights, len(current), tolerance) / SLACK:
            assert after.moved_from(current) == set()
        if not after.moved_from(current):
            return
        current = after
    raise AssertionError("the steps do not end")


@given(rates, st.integers(1, 8), tolerances)
def test_giants_get_a_task_of_their_own_at_a_start(found: list[float], count: int, tolerance: float) -> None:
    weights = keyed(found)
    alone = giants(weights, count, tolerance)
    assert len(alone) < count
    packed = repack(names(count), weights)
    for key in alone:
        task = packed[packed.owners()[key]]
        assert all(weights[other] == 0 for other in task if other != key)


@given(st.lists(st.floats(1, 2), min_size=200, max_size=400), st.integers(2, 10), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_many_partitions_of_any_assignment_come_within_the_tolerance(
    found: list[float], count: int, chance: object
) -> None:
    weights = keyed(found)
    keys = list(weights)
    chance.shuffle(keys)  # type: ignore[attr-defined]
    before = Assignment({name: keys[n::count] if n else keys[:: 2 * count] for n, name in enumerate(names(count))})
    weights = {key: weights[key] for key in before.partitions()}
    after = step(before, weights, 0.10)
    assert quality(after, weights).heaviest <= 1.10 * quality(after, weights).mean * SLACK


@given(assigned(), st.integers(1, 12), rates, tolerances)
def test_tasks_and_partitions_may_change_in_any_way(
    given: tuple[Assignment, Weights], count: int, found: list[float], tolerance: float
) -> None:
    before, weights = given
    new = {TopicPartition("new", n): rate for n, rate in enumerate(found)}
    kept = dict(list(weights.items())[::2]) | new
    tasks = tasks_for(before, kept, count)
    after = renew(before, tasks, kept, tolerance)
    assert list(after) == tasks
    assert len(set(tasks)) == count
    assert after.partitions() == kept.keys()


@given(st.lists(st.floats(1, 2), min_size=300, max_size=600), st.integers(2, 9), st.sampled_from([-1, 1, 2]))
@settings(max_examples=30)
def test_the_count_changes_by_a_sticky_step_at_any_size(found: list[float], count: int, change: int) -> None:
    """What moves is the share of the tasks that begin or end, and little more; a repack would move nearly all."""
    weights = keyed(found)
    before = repack(names(count), weights)
    tasks = tasks_for(before, weights, count + change)
    after = renew(before, tasks, weights, 0.10)
    assert quality(after, weights).ratio <= 1.10 * SLACK
    share = abs(change) / max(count, count + change)
    assert len(after.moved_from(before)) <= (share + 0.10) * len(weights)


@given(assigned(), st.integers(1, 20))
def test_no_task_gets_more_partitions_than_it_may(given: tuple[Assignment, Weights], most: int) -> None:
    before, weights = given
    if most * len(before) < len(weights):
        with pytest.raises(NotEnoughRoom):
            renew(before, list(before), weights, 0.10, most)
        return
    after = renew(before, list(before), weights, 0.10, most)
    assert max(map(len, after.values())) <= most
    assert after.partitions() == weights.keys()


@given(assigned(), rates)
def test_new_partitions_move_nothing_else(given: tuple[Assignment, Weights], found: list[float]) -> None:
    before, weights = given
    new = {TopicPartition("new", n): rate for n, rate in enumerate(found)}
    assert place(before, new, weights | new).moved_from(before) == set()


@given(assigned())
def test_without_rates_counts_are_even_and_moves_are_the_fewest(given: tuple[Assignment, Weights]) -> None:
    before, weights = given
    after = by_count(before, weights)
    counts = sorted(map(len, after.values()))
    assert counts[-1] - counts[0] <= 1
    assert after.partitions() == weights.keys()
    least, more = divmod(len(weights), len(before))
    fullest = sorted(map(len, before.values()), reverse=True)
    surplus = sum(max(kept - least - (n < more), 0) for n, kept in enumerate(fullest))
    assert len(after.moved_from(before)) == surplus


@given(rates, st.integers(1, 40), st.integers(1, 30))
def test_the_count_carries_the_load_or_names_what_caps_it(found: list[float], most: int, most_partitions: int) -> None:
    weights = keyed(found)
    limits = TaskLimits(capacity=1e6, utilization=0.7, most_partitions=most_partitions, most=most)
    asked = needed(weights, limits)
    assert limits.fewest <= asked.tasks <= limits.most
    if asked.capped_by is CappedBy.MAX:
        assert asked.tasks == limits.most
        return
    packed = repack(names(asked.tasks), weights, most_partitions)
    heaviest = quality(packed, weights).heaviest
    assert heaviest <= max(limits.usable, *weights.values()) * SLACK
    assert asked.tasks >= by_load(sum(min(w, limits.usable) for w in weights.values()), limits.usable)


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=60), st.integers(1, 40))
def test_more_tasks_at_once_and_fewer_only_after_patience(windows: list[tuple[int, bool]], running: int) -> None:
    state = CountState()
    for n, (asked, may_shrink) in enumerate(windows):
        before = running
        running, state = scaled(running, Needed(asked), state, may_shrink=may_shrink)
        if asked >= before:
            assert running == asked
        elif running < before:
            recent = [tasks for tasks, _ in windows[max(n - LOW_WINDOWS + 1, 0) : n + 1]]
            assert may_shrink
            assert len(recent) == LOW_WINDOWS
            assert all(tasks <= 0.75 * before for tasks in recent)
            assert running >= max(recent)


@given(st.lists(st.floats(0.8, 1.0), min_size=50, max_size=50))
def test_a_load_that_wavers_by_a_fifth_does_not_flap(shares: list[float]) -> None:
    """The count follows the highest of it and then stands still."""
    running, state, changes = 100, CountState(), 0
    for share in shares:
        before = running
        running, state = scaled(running, Needed(int(100 * share)), state, may_shrink=True)
        changes += running != before
    assert changes == 0
