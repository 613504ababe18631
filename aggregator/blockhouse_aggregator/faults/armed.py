"""Which faults are armed, and how often each has still to strike. The driver asks at every point it passes.

Thread-safe: the event loop and the threads of group members ask. Disabled it never holds a fault, so that the answer at
every point is "none".
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from blockhouse_aggregator.faults.model import ArmedFault, Injection, Point


@dataclass(slots=True)
class _Waiting:
    fault: ArmedFault
    until: float
    passes: int = 0
    strikes: int = 0


@dataclass(frozen=True, slots=True)
class FaultState:
    """One armed fault as it stands: how often its point was passed, how often it struck."""

    fault: ArmedFault
    passes: int
    strikes: int


class Faults:
    """At most one armed fault per point. `clock` is monotonic seconds; `struck` hears of every injection."""

    def __init__(
        self,
        *,
        enabled: bool = False,
        clock: Callable[[], float] = lambda: 0.0,
        struck: Callable[[Injection, str, str], None] = lambda *_: None,
    ) -> None:
        self.enabled = enabled
        self._clock = clock
        self._struck = struck
        self._guard = threading.Lock()
        self._waiting: dict[Point, _Waiting] = {}
        self._total: Counter[Point] = Counter()

    def arm(self, fault: ArmedFault) -> None:
        """Arm, in place of what was armed at that point. Raises ValueError while fault injection is off."""
        if not self.enabled:
            raise ValueError("fault injection is off: set faults.enabled in the aggregator's configuration")
        until = float("inf") if fault.lasts is None else self._clock() + fault.lasts
        with self._guard:
            self._waiting[fault.point] = _Waiting(fault, until)

    def disarm(self, point: Point | None = None) -> None:
        """Forget the fault of one point, or all of them. What already strikes continues."""
        with self._guard:
            for one in [point] if point is not None else list(self._waiting):
                self._waiting.pop(one, None)

    def take(self, point: Point, stream: str, table: str = "") -> Injection | None:
        """The point is passed: the fault that has to happen now, if any. It counts as having struck."""
        if not self._waiting:
            return None
        with self._guard:
            waiting = self._waiting.get(point)
            if waiting is None or not waiting.fault.concerns(stream, table):
                return None
            if self._clock() > waiting.until:
                del self._waiting[point]
                return None
            waiting.passes += 1
            if waiting.passes <= waiting.fault.skip:
                return None
            waiting.strikes += 1
            self._total[point] += 1
            if waiting.strikes == waiting.fault.count:
                del self._waiting[point]
            injection = waiting.fault.injection()
        self._struck(injection, stream, table)
        return injection

    def armed(self) -> tuple[FaultState, ...]:
        """What still waits, in the order of the points."""
        with self._guard:
            now = self._clock()
            return tuple(
                FaultState(w.fault, w.passes, w.strikes) for _, w in sorted(self._waiting.items()) if now <= w.until
            )

    def struck(self) -> dict[Point, int]:
        """How often a fault has struck at each point since the start."""
        with self._guard:
            return dict(self._total)
