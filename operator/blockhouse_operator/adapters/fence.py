"""Whether this process may still write: the leader's lease, seen from a clock that a freeze does not stop.

A leader frozen past its lease and thawed does not know yet that another one leads. So every write asks here first; a
lease counts from BEFORE its renewal was asked for, and ends earlier here than another candidate may take it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from blockhouse.errors import BlockhouseError

Clock = Callable[[], float]


def boot_clock() -> float:
    """Seconds since boot, suspended time included: a frozen process or machine cannot hold it still."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeadershipLost(BlockhouseError):
    """This process is not, or no longer, the leader: it must write nothing and end."""


class Fence:
    """Shut until the first renewal; open for `seconds` after each; never open again once it lapsed or was shut.

    A lapsed lease may be taken again, but what was decided before is stale by then: another leader may have led
    meanwhile. The process has to be restarted.
    """

    def __init__(self, seconds: float, clock: Clock = boot_clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = float("-inf")
        self._shut = False

    def now(self) -> float:
        """Seconds of the fence's own steady clock."""
        return self._clock()

    def renewed(self, asked_at: float) -> None:
        """The lease was renewed by a request that was sent at `asked_at` of this fence's clock, not before."""
        if self._until > float("-inf") and not self.open:
            self._shut = True
        self._until = max(self._until, asked_at + self._seconds)

    def shut(self) -> None:
        """Allow no write any more, whatever is renewed."""
        self._shut = True

    @property
    def open(self) -> bool:
        return not self._shut and self._clock() < self._until

    def check(self) -> None:
        """Raise LeadershipLost unless a write is allowed at this moment."""
        if not self.open:
            raise LeadershipLost("the leader's lease is over: nothing may be written; another operator takes over")


class OpenFence(Fence):
    """For a process that leads by itself, as with `--no-leader-election`: always open until shut."""

    def __init__(self) -> None:
        super().__init__(float("inf"))
        self._until = float("inf")
