"""Until when a task may write, whatever became of its driver or of the network between them."""

from __future__ import annotations

import os
import sys
import time

EXIT_GRANT_OVER = 71


class GrantClock:
    """Until when this process may write. CLOCK_BOOTTIME continues while a machine is suspended."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = self.now() + seconds

    @staticmethod
    def now() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def heard(self, moment: float) -> None:
        """The driver has answered what was asked at that moment."""
        self._until = max(self._until, moment + self._seconds)

    def check(self) -> None:
        """Ends the process, with all that its clients hold unsent, when the driver was not heard in time."""
        if self.now() >= self._until:
            sys.stderr.write("mirror task: the driver was not heard in time; the grants are over, this process ends\n")
            sys.stderr.flush()
            os._exit(EXIT_GRANT_OVER)
