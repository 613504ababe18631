"""Faults that need an aggregator at work: one that dies at a point of its work, or whose Spark processes die.

Faults overlap: the target may be down, or have nothing to do. So these wait, and take another in its place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress

from e2e.chaos.layout import pod_of
from e2e.chaos.scenario import Fault
from e2e.chaos.world import World
from e2e.kit.supervisor import Supervisor
from e2e.pipeline import AggregatorProcess
from e2e.stack.process import wait_until
from e2e.stack.server import StackError

STRIKE_TIMEOUT = 15.0
"""Seconds in which an armed aggregator should reach its point before the next one is armed too."""
WORK_TIMEOUT = 150.0
"""Seconds until some aggregator owns a stream, whatever else happens: with both zones down all start again, which takes
a busy machine a minute."""


class Striker:
    """Thread-safe; `over` ends all waiting."""

    def __init__(self, world: World, supervisor: Supervisor, over: threading.Event) -> None:
        self._world = world
        self._supervisor = supervisor
        self._over = over
        self._turn = threading.Lock()

    def kill_member(self, fault: Fault) -> str:
        """Kill the processes of the fault's kind in an aggregator that has any: there are none before its first job,
        nor after another fault has killed them. Returns its name. Raises StackError when none has any for long."""
        killed: list[str] = []

        def kill() -> bool:
            name = self._working(fault.target, lambda aggregator: bool(aggregator.members(fault.member)))
            if name is not None:
                with suppress(StackError, ProcessLookupError):  # they have ended since
                    self._world.aggregator(name).kill_member(fault.member)
                    killed.append(name)
            return bool(killed) or self._over.is_set()

        if not wait_until(kill, timeout=WORK_TIMEOUT, interval=0.2) or not killed:
            raise StackError(f"no aggregator that owns streams has a process of kind {fault.member}")
        return killed[0]

    def strike(self, fault: Fault, down: ExitStack) -> list[str]:
        """Arm the point until an aggregator has died of it, which stays `down`. Returns the names of the dead. One
        strike is armed at a time: two at one process would both claim its one death. Raises StackError when none
        passes the point for long."""
        with self._turn:
            until = time.monotonic() + WORK_TIMEOUT
            while time.monotonic() < until and not self._over.is_set():
                if struck := self._struck(fault, down):
                    return struck
        raise StackError(f"no aggregator passed {fault.point} within {WORK_TIMEOUT:g} s")

    def _struck(self, fault: Fault, down: ExitStack) -> list[str]:
        """Arm each aggregator that works, the target first, until one has died of it. Those that died of something
        else are not held down."""
        armed: dict[str, _Armed] = {}
        struck: list[str] = []

        def strikes() -> bool:
            struck[:] = [name for name, each in armed.items() if each.struck]
            return bool(struck) or self._over.is_set()

        with ExitStack() as until_struck:
            name: str | None = self._wait_for_working(fault.target)
            while name is not None and not struck and not self._over.is_set():
                until_struck.enter_context(self._supervisor.holding_down([name]))
                armed[name] = _Armed(self._world.aggregator(name), fault.point)
                until_struck.callback(armed[name].disarm)
                armed[name].arm()
                wait_until(strikes, timeout=STRIKE_TIMEOUT)
                name = self._working(fault.target, but=armed)
            down.enter_context(self._supervisor.holding_down(struck))
        return struck

    def _wait_for_working(self, preferred: str) -> str:
        found: list[str] = []

        def look() -> bool:
            name = self._working(preferred)
            found.extend([name] if name is not None else [])
            return bool(found) or self._over.is_set()

        if not wait_until(look, timeout=WORK_TIMEOUT, interval=0.2) or not found:
            raise StackError("no aggregator owns a stream")
        return found[0]

    def _working(
        self, preferred: str, accepts: Callable[[AggregatorProcess], bool] = lambda _: True, but: Collection[str] = ()
    ) -> str | None:
        """The preferred aggregator if it owns streams, else the first of its shard that does, `but` none of these."""
        layout = self._world.scenario.layout
        pods = {f"aggregator-{pod}": pod for pod in layout.pods(layout.shard_of(pod_of(preferred)))}
        for name in sorted({*pods} - {*but}, key=lambda name: (name != preferred, name)):
            aggregator = self._world.aggregators[pods[name]]
            if _owns_streams(aggregator) and accepts(aggregator):
                return name
        return None


def _owns_streams(aggregator: AggregatorProcess) -> bool:
    return aggregator.alive and not aggregator.frozen and bool(aggregator.streams())


class _Armed:
    """One aggregator with a deadly point. It may die of another fault meanwhile, which is no strike; while it dies it
    does not answer, and then nothing is armed."""

    def __init__(self, aggregator: AggregatorProcess, point: str) -> None:
        self._aggregator = aggregator
        self._point = point
        self._before = self._strikes()

    @property
    def struck(self) -> bool:
        return not self._aggregator.alive and self._strikes() > self._before

    def arm(self) -> None:
        with suppress(OSError):
            self._aggregator.arm_fault(self._point, action="kill-aggregator")

    def disarm(self) -> None:
        with suppress(OSError):
            self._aggregator.disarm_fault(self._point)

    def _strikes(self) -> int:
        return len(self._aggregator.logged("fault.injected", point=self._point))
