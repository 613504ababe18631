"""The same trouble three times in a row at one place is an alarm with its cause; anything less is none."""

from __future__ import annotations

import pytest

from blockhouse_aggregator.gate.messages import Bye, Sealed, Trouble
from blockhouse_aggregator.runtime.stream.task_troubles import FIRST_ALARM, NEXT_ALARMS, ORDER_FAILING, TaskTroubles
from tests.unit.blocks.test_scan_rounds import order

SEALED = Sealed(round=1, start=0, stop=5, tables=(), headless=0, leader_epoch=-1, log_end=5, elapsed=0.1)
REFUSED = Trouble(reason="DeadLetterRefused", message="the user lacks a right", retryable=True)
SILENT = Trouble(reason="Retryable", message="no broker answers", retryable=True)


def heard(troubles: TaskTroubles, *answers: Sealed | Trouble | Bye | None) -> list[str]:
    """Reasons of the alarms that the answers to one and the same order raise."""
    alarms = [troubles.heard(order(7), answer) for answer in answers]
    return [alarm.reason for alarm in alarms if alarm is not None]


def test_the_third_in_a_row_is_an_alarm_with_the_cause_and_so_is_one_of_many_later() -> None:
    troubles = TaskTroubles()
    assert heard(troubles, *[REFUSED] * (FIRST_ALARM - 1)) == []
    alarm = troubles.heard(order(7), REFUSED)
    assert alarm is not None
    assert (alarm.reason, REFUSED.message in alarm.message) == (REFUSED.reason, True)
    assert heard(troubles, *[REFUSED] * (NEXT_ALARMS - 1)) == []
    assert heard(troubles, REFUSED) == [REFUSED.reason]


def test_a_trouble_without_a_reason_of_its_own_gets_one() -> None:
    assert heard(TaskTroubles(), *[SILENT] * FIRST_ALARM) == [ORDER_FAILING]


@pytest.mark.parametrize("between", [SEALED, SILENT])
def test_an_order_that_is_carried_out_and_another_trouble_begin_a_new_count(between: Sealed | Trouble) -> None:
    two = [REFUSED] * (FIRST_ALARM - 1)
    assert heard(TaskTroubles(), *two, between, *two) == []


def test_leases_that_end_between_two_tries_do_not_begin_a_new_count() -> None:
    assert heard(TaskTroubles(), REFUSED, Bye(), REFUSED, None, REFUSED) == [REFUSED.reason]


def test_another_place_begins_a_new_count() -> None:
    troubles = TaskTroubles()
    assert [troubles.heard(order(begin), REFUSED) for begin in range(9)] == [None] * 9
