"""The clock that waits, deadlines and intervals are measured by; never what goes into metadata or a block."""

from __future__ import annotations

import asyncio


def loop_time() -> float:
    """Seconds on the running event loop's clock, from an arbitrary beginning."""
    return asyncio.get_running_loop().time()
