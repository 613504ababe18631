"""Whether people have drained this aggregator: it finishes what is in flight, leaves its groups and stays up without a
stream until they let it resume.

It remembers nothing itself: what is recorded counts, so that an aggregator that starts again is still drained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from blockhouse_aggregator.coordination.drains import Drain
from blockhouse_aggregator.runtime.ports import Drains

log = structlog.get_logger(__name__)


class Draining:
    """On the event loop."""

    def __init__(self, store: Drains) -> None:
        self._store = store
        self._changed = asyncio.Event()
        self.asked: Drain | None = None

    @property
    def problem(self) -> str:
        """Why it is drained and by whom; empty while it is not."""
        return f"{self.asked.why} ({self.asked.by})" if self.asked is not None else ""

    async def start(self) -> None:
        """Read what is recorded. Raises Retryable."""
        self.asked = await self._store.get()

    async def drain(self, by: str, why: str) -> Drain:
        """Record that it is drained; returns once that is recorded, before it is carried out. Raises Retryable."""
        asked = self.asked = await self._store.put(by, why)
        log.warning("drain.asked", by=asked.by, why=asked.why)
        self._changed.set()
        return asked

    async def resume(self, by: str) -> None:
        """Let it own streams again; nothing when it is not drained. Raises Retryable."""
        if await self._store.remove():
            log.warning("drain.ended", by=by)
        self.asked = None
        self._changed.set()

    async def watch(self, follow: Callable[[bool], Awaitable[None]]) -> None:
        """Call `follow(drained)` after each change, one at a time: who resumes while it drains waits for its end."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await follow(self.asked is not None)
