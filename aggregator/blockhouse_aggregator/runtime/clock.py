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


class AwakeClock:
    """The loop's clock without the time for which nothing of the loop ran, as when the process was suspended: an answer
    that came meanwhile could not be heard. `tick` is called more often than every `most` seconds while the loop runs.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._held = 0.0
        self._ticked: float | None = None

    def tick(self) -> None:
        """The loop runs."""
        self._held, self._ticked = self.held(), loop_time()

    def held(self) -> float:
        """Seconds for which the loop did not run, in all since the first tick."""
        beyond = loop_time() - self._ticked - self._most if self._ticked is not None else 0.0
        return self._held + max(0.0, beyond)

    def now(self) -> float:
        """Seconds for which it ran, from an arbitrary beginning."""
        return loop_time() - self.held()
