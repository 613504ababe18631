"""What the start of a process is at: servers that do not answer, or refuse, are waited for, loudly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from blockhouse.contract.notices import StartWait
from blockhouse.errors import Retryable
from blockhouse_aggregator.runtime.clock import pause

log = structlog.get_logger(__name__)


class Start:
    """Of one process, until `ending`. `waits` is the part that is not over, None between and behind the parts."""

    def __init__(self, ending: asyncio.Event, now_ms: Callable[[], int]) -> None:
        self._ending = ending
        self._now_ms = now_ms
        self.waits: StartWait | None = None

    async def patiently(self, what: str, action: Callable[[], Awaitable[None]]) -> None:
        """Do one part of the start, again and again until it succeeds or the process ends. Raises what is Permanent."""
        since_ms = self._now_ms()
        self.waits = StartWait(what=what, since_ms=since_ms, error="")
        try:
            while not self._ending.is_set():
                try:
                    await action()
                    return
                except Retryable as error:
                    self.waits = StartWait(what=what, since_ms=since_ms, error=str(error)[:500])
                    log.warning("start.waits", what=what, error=str(error))
                    await pause(self._ending, max(1.0, error.after))
        finally:
            self.waits = None
