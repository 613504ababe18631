"""When a leader may write, with the test as the clock."""

from __future__ import annotations

import pytest

from blockhouse_operator.adapters.fence import Fence, LeadershipLost


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_may_be_written_before_the_first_renewal() -> None:
    with pytest.raises(LeadershipLost):
        Fence(10, Clock()).check()


def test_a_lease_counts_from_before_its_renewal_was_asked_for() -> None:
    clock = Clock()
    fence = Fence(10, clock)
    asked_at = fence.now()
    clock.now += 9
    fence.renewed(asked_at)
    fence.check()

    clock.now += 1
    with pytest.raises(LeadershipLost):
        fence.check()


def test_renewals_in_time_keep_it_open() -> None:
    clock = Clock()
    fence = Fence(10, clock)
    for _ in range(10):
        fence.renewed(fence.now())
        clock.now += 8
        fence.check()


def test_a_lease_taken_again_after_it_lapsed_opens_nothing_for_what_was_decided_before() -> None:
    clock = Clock()
    fence = Fence(10, clock)
    fence.renewed(fence.now())
    clock.now += 60
    fence.renewed(fence.now())

    assert not fence.open


def test_a_shut_fence_stays_shut() -> None:
    fence = Fence(10, Clock())
    fence.renewed(fence.now())
    fence.shut()
    fence.renewed(fence.now())

    assert not fence.open
