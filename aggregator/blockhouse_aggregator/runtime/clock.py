"""The clock that waits, deadlines and intervals are measured by; never what goes into metadata or a block."""

from __future__ import annotations

import asyncio


def loop_time() -> float:
    """Seconds on the running event loop's clock, from an arbitrary beginning."""
    return asyncio.get_running_loop().time()


async def pause(over: asyncio.Event, seconds: float) -> None:
    """Wait so long, or return at once when `over` is set."""
    try:
        await asyncio.wait_for(over.wait(), seconds)
    except TimeoutError:
        return
