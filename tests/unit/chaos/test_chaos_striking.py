"""Faults that need an aggregator at work, when they overlap with each other: a few objects stand for the world."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from e2e.chaos.layout import Layout
from e2e.chaos.scenario import Fault, Kind
from e2e.chaos.striking import Striker
from e2e.stack.server import StackError


class Aggregator:
    """Dies of the first point that is armed, and starts once it is held down no longer."""

    def __init__(self) -> None:
        self.alive, self.frozen = True, False
        self.strikes: list[str] = []
        self.workers: list[list[int]] = []
        """What each search for its workers finds; then one."""

    def streams(self) -> Sequence[object]:
        return ["a/t/0"]

    def logged(self, event: str, *, point: str) -> Sequence[str]:
        assert event == "fault.injected"
        return [strike for strike in self.strikes if strike == point]

    def members(self, kind: str) -> list[int]:
        assert kind == "worker"
        return self.workers[0] if self.workers else [1]

    def kill_member(self, kind: str) -> None:
        if not self.members(kind) or self.workers:
            self.workers.pop(0)
            raise StackError("it has ended")

    def arm_fault(self, point: str, *, action: str) -> None:
        assert action == "kill-aggregator"
        self.strikes.append(point)
        self.alive = False

    def disarm_fault(self, point: str) -> None: ...


class Supervisor:
    def __init__(self, aggregators: dict[str, Aggregator]) -> None:
        self.held: list[str] = []
        self._aggregators = aggregators

    @contextmanager
    def holding_down(self, names: Sequence[str]) -> Iterator[None]:
        names = [*names]
        self.held += names
        try:
            yield
        finally:
            for name in names:
                self.held.remove(name)
                if name not in self.held:
                    self._aggregators[name.partition("-")[2]].alive = True


@pytest.fixture
def aggregators() -> dict[str, Aggregator]:
    return {pod: Aggregator() for pod in ("r1", "r2")}


@pytest.fixture
def striker(aggregators: dict[str, Aggregator]) -> Striker:
    world: Any = SimpleNamespace(
        scenario=SimpleNamespace(layout=Layout(2)),
        aggregators=aggregators,
        aggregator=lambda name: aggregators[name.partition("-")[2]],
    )
    supervisor: Any = Supervisor(aggregators)
    return Striker(world, supervisor, threading.Event())


def test_two_strikes_at_one_aggregator_are_two_deaths(striker: Striker, aggregators: dict[str, Aggregator]) -> None:
    fault = Fault(at=0, kind=Kind.STRIKE, target="aggregator-r1", point="after-insert")
    both = threading.Barrier(2)

    def strike() -> list[str]:
        with ExitStack() as down:
            both.wait(10)
            struck = striker.strike(fault, down)
            both.wait(10)  # the first stays down until the second has died
            return struck

    with ThreadPoolExecutor(2) as pool:
        dead = [future.result() for future in [pool.submit(strike), pool.submit(strike)]]

    assert sorted(dead) == [["aggregator-r1"], ["aggregator-r2"]]
    assert [len(each.strikes) for each in aggregators.values()] == [1, 1]


def test_workers_are_killed_once_there_are_some(striker: Striker, aggregators: dict[str, Aggregator]) -> None:
    aggregators["r1"].alive = False
    aggregators["r2"].workers = [[7]]  # they end while they are about to be killed
    fault = Fault(at=0, kind=Kind.MEMBER, target="aggregator-r1", member="worker")

    assert striker.kill_member(fault) == "aggregator-r2"
    assert aggregators["r2"].workers == []


def test_a_strike_ends_when_the_run_is_over(aggregators: dict[str, Aggregator], striker: Striker) -> None:
    for aggregator in aggregators.values():
        aggregator.alive = False
    striker._over.set()
    with ExitStack() as down, pytest.raises(StackError, match="after-insert"):
        striker.strike(Fault(at=0, kind=Kind.STRIKE, target="aggregator-r1"), down)
