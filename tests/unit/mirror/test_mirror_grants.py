"""The clock of a task's grants: it ends the process in time, and what comes too late does not revive it."""

from __future__ import annotations

import os
import time

import pytest

from blockhouse_mirror.work.grant_clock import EXIT_GRANT_OVER, GrantClock


class Ended(BaseException):
    pass


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(time, "clock_gettime", self.read)
        monkeypatch.setattr(os, "_exit", self.ended)
        self.codes: list[int] = []

    def read(self, kind: int) -> float:
        assert kind == time.CLOCK_BOOTTIME, "it has to count while the machine is suspended"
        return self.now

    def ended(self, code: int) -> None:
        self.codes.append(code)
        raise Ended


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_it_ends_the_process_when_the_driver_was_not_heard_in_time(clock: Clock) -> None:
    grants = GrantClock(10.0)
    clock.now += 9.9
    grants.check()

    clock.now += 0.1
    with pytest.raises(Ended):
        grants.check()
    assert clock.codes == [EXIT_GRANT_OVER]


def test_each_time_the_driver_is_heard_it_holds_for_as_long_again(clock: Clock) -> None:
    grants = GrantClock(10.0)
    for _ in range(5):
        clock.now += 9.0
        grants.heard(clock.now)
    grants.check()

    assert clock.codes == []


def test_what_was_waiting_while_the_process_was_frozen_does_not_revive_its_grants(clock: Clock) -> None:
    """Its socket is full of the driver's answers when it is thawed, all to questions from before."""
    grants = GrantClock(10.0)
    asked_at = clock.now + 1.0
    clock.now += 60.0

    grants.heard(asked_at)

    with pytest.raises(Ended):
        grants.check()


def test_an_older_answer_takes_nothing_back(clock: Clock) -> None:
    grants = GrantClock(10.0)
    clock.now += 5.0
    grants.heard(clock.now)
    grants.heard(clock.now - 4.0)
    clock.now += 9.0

    grants.check()

    assert clock.codes == []
