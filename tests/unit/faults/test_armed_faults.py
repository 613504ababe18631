"""Which pass of a point is struck: counts, skips, time, stream and table; and never anything while it is off."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.faults.model import ACTIONS, Action, ArmedFault, Point

STREAM = "a/events/0"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def armed(*faults: ArmedFault, clock: Clock | None = None) -> Faults:
    found = Faults(enabled=True, clock=clock or Clock())
    for fault in faults:
        found.arm(fault)
    return found


def strikes(faults: Faults, passes: int, point: Point = Point.AFTER_COMMIT) -> list[bool]:
    return [faults.take(point, STREAM) is not None for _ in range(passes)]


def test_the_next_one_is_struck_and_no_other() -> None:
    faults = armed(ArmedFault(point=Point.AFTER_COMMIT, action=Action.FAIL))

    assert strikes(faults, 3) == [True, False, False]
    assert faults.armed() == ()
    assert faults.struck() == {Point.AFTER_COMMIT: 1}


def test_skipped_passes_go_through_and_then_so_many_are_struck() -> None:
    faults = armed(ArmedFault(point=Point.AFTER_COMMIT, action=Action.FAIL, skip=2, count=2))

    assert strikes(faults, 6) == [False, False, True, True, False, False]


def test_without_a_count_it_lasts_until_its_time_is_over() -> None:
    clock = Clock()
    faults = armed(ArmedFault(point=Point.DURING_FETCH, action=Action.FAIL, count=None, lasts=10), clock=clock)

    before = strikes(faults, 5, Point.DURING_FETCH)
    clock.now = 10.5

    assert before == [True] * 5
    assert faults.armed() == ()
    assert strikes(faults, 1, Point.DURING_FETCH) == [False]


def test_another_stream_table_or_point_is_not_struck_and_does_not_count_as_a_pass() -> None:
    faults = armed(ArmedFault(point=Point.BEFORE_INSERT, action=Action.FAIL, stream=STREAM, table="d.t", skip=1))

    others = [
        faults.take(Point.BEFORE_INSERT, "b/events/0", "d.t"),
        faults.take(Point.BEFORE_INSERT, STREAM, "d.other"),
        faults.take(Point.AFTER_INSERT, STREAM, "d.t"),
    ]

    assert others == [None, None, None]
    assert faults.armed()[0].passes == 0
    assert [faults.take(Point.BEFORE_INSERT, STREAM, "d.t") is not None for _ in range(2)] == [False, True]


def test_a_disarmed_point_is_not_struck_and_the_others_are() -> None:
    faults = armed(
        ArmedFault(point=Point.AFTER_COMMIT, action=Action.FAIL),
        ArmedFault(point=Point.BEFORE_COMMIT, action=Action.FAIL),
    )

    faults.disarm(Point.AFTER_COMMIT)

    assert strikes(faults, 1) == [False]
    assert strikes(faults, 1, Point.BEFORE_COMMIT) == [True]


def test_nothing_can_be_armed_while_it_is_off() -> None:
    faults = Faults()

    with pytest.raises(ValueError, match=r"faults\.enabled"):
        faults.arm(ArmedFault(point=Point.AFTER_COMMIT, action=Action.KILL_AGGREGATOR))

    assert strikes(faults, 3) == [False] * 3


@pytest.mark.parametrize("point", Point)
def test_every_point_takes_exactly_the_actions_that_make_sense_there(point: Point) -> None:
    for action in Action:
        body = {"point": point, "action": action, "seconds": 1 if action is Action.DELAY else 0}
        if action in ACTIONS[point]:
            assert ArmedFault.model_validate(body).injection().action is action
        else:
            with pytest.raises(ValidationError, match="not possible"):
                ArmedFault.model_validate(body)


@pytest.mark.parametrize(
    "body",
    [
        {"point": "after-commit", "action": "delay"},
        {"point": "after-commit", "action": "fail", "seconds": 1},
        {"point": "after-commit", "action": "fail", "table": "d.t"},
        {"point": "after-commit", "action": "fail", "count": 0},
        {"point": "after-commit", "action": "fail", "often": 2},
    ],
)
def test_a_fault_that_means_nothing_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ArmedFault.model_validate(body)
