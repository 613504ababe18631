"""One question for all who ask it at once: as many streams of a topic as there are, one request to the broker.

Who asks may rely on when the answer was true: it must never be one to a question that began before it was asked, unless
an older one is allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from blockhouse_aggregator.runtime.clock import loop_time

K = TypeVar("K")
V = TypeVar("V")


class SharedQuestion(Generic[K, V]):
    """Asks `question(key)`; of one key at most one is under way and one waits behind it."""

    def __init__(self, question: Callable[[K], Awaitable[V]]) -> None:
        self._question = question
        self._running: dict[K, asyncio.Task[V]] = {}
        self._next: dict[K, asyncio.Task[V]] = {}
        self._known: dict[K, tuple[float, V]] = {}

    async def ask(self, key: K, max_age: float = 0.0) -> V:
        """The answer to a question that began now or later, or less than `max_age` seconds ago. Raises what it does."""
        known = self._known.get(key)
        if known is not None and loop_time() - known[0] < max_age:
            return known[1]
        waiting = self._next.get(key)
        if waiting is None:
            running = self._running.get(key)
            if running is None:
                waiting = self._running[key] = asyncio.ensure_future(self._run(key))
            else:
                waiting = self._next[key] = asyncio.ensure_future(self._after(key, running))
            # A stream may be revoked while it asks: an error that no one waits for any more is no one's error.
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(waiting)

    async def _after(self, key: K, running: asyncio.Task[V]) -> V:
        await asyncio.wait({running})
        self._running[key] = self._next.pop(key)
        return await self._run(key)

    async def _run(self, key: K) -> V:
        began = loop_time()
        current = asyncio.current_task()
        try:
            answer = await self._question(key)
            self._known[key] = (began, answer)
            return answer
        finally:
            if self._running.get(key) is current:
                del self._running[key]
