"""When a server that starts has to be called hung. Pure: processor time and clock are handed in."""

from __future__ import annotations

from blockhouse_operator.desired.scripts import LEAST_TICKS

HUNG_SECONDS = 30.0
"""Here servers are small: the startup probe of a pod has four times the patience."""


class StartWatch:
    """One start of the process `pid`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.over = False
        self._worked: tuple[float, float] | None = None

    def end(self) -> None:
        """It has answered: whatever it does from now on, it does not hang at its start."""
        self.over = True

    def hangs(self, used: float, now: float, *, waits: bool) -> bool:
        """Whether it has done nothing for HUNG_SECONDS before `now`. `used` is its processor time so far, in seconds;
        `waits` is whether it has not even become the server yet, which is no failure."""
        if self._worked is None or waits or used - self._worked[0] >= LEAST_TICKS / 100:
            self._worked = used, now
        return now - self._worked[1] >= HUNG_SECONDS
