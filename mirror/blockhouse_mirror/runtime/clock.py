"""The clock that grants are measured with."""

from __future__ import annotations

import time


def boot_time() -> float:
    """Seconds that continue while a machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
