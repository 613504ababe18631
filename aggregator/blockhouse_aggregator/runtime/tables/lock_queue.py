"""The queue of this aggregator's own streams at the lock of a table.

They queue here before one of them asks ZooKeeper, and the one that has the lock hands it on to those that wait: taking
it costs several requests, and an aggregator of many streams must not join the shard's queue again for each.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from blockhouse.errors import Overdue
from blockhouse_aggregator.runtime.ports import Lock, Locks

LOCK_WAIT = 30.0


@dataclass(slots=True)
class _Queue:
    """Who waits for one table. `kept` is the lock between two holders; `left` is for how many more it may be kept:
    each of those that waited when it was taken has one, so that other aggregators get theirs."""

    mutex: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    kept: Lock | None = None
    left: int = 0

    def enter(self) -> None:
        self.waiting += 1

    def leave(self) -> None:
        self.waiting -= 1

    def took(self) -> None:
        """The lock was taken from ZooKeeper: each of those that wait now may have it before it is released."""
        self.left = self.waiting

    def keep(self, lock: Lock) -> bool:
        """Keep a lock for the next of those that wait; False when it is to be released."""
        if self.left <= 0 or self.waiting <= 0 or not lock.valid:
            return False
        self.left -= 1
        self.kept = lock
        return True

    def take_kept(self) -> Lock | None:
        """The lock that was kept, if any; from now on it is the caller's."""
        kept, self.kept = self.kept, None
        return kept

    def take_abandoned(self) -> Lock | None:
        """The lock that was kept for the one stream that waits, which has stopped waiting: no one else is here to take
        it or to release it."""
        return self.take_kept() if self.waiting == 1 and not self.mutex.locked() else None


class LockQueue:
    """Used on the event loop only."""

    def __init__(self, locks: Locks) -> None:
        self._locks = locks
        self._queues: dict[str, _Queue] = defaultdict(_Queue)
        self._releasing: set[asyncio.Future[None]] = set()

    @asynccontextmanager
    async def holding(self, table: str, table_path: str | None = None) -> AsyncIterator[Lock]:
        """Hold the shard-wide lock of `table`, whose node in ZooKeeper is `table_path`. Raises Retryable when it cannot
        be had within LOCK_WAIT seconds."""
        queue = self._queues[table]
        await self._wait(queue)
        try:
            lock = await self._lock(table, table_path, queue)
            try:
                yield lock
            finally:
                if not queue.keep(lock):
                    await asyncio.shield(self._locks.release(lock))
        finally:
            queue.mutex.release()

    async def _wait(self, queue: _Queue) -> None:
        queue.enter()
        try:
            await queue.mutex.acquire()
        except asyncio.CancelledError:
            if (abandoned := queue.take_abandoned()) is not None:
                self._release(abandoned)
            raise
        finally:
            queue.leave()

    async def _lock(self, table: str, table_path: str | None, queue: _Queue) -> Lock:
        if (kept := queue.take_kept()) is not None:
            return kept
        lock = await self._acquire(table, table_path)
        if lock is None:
            raise Overdue(f"lock of table {table} not free within {LOCK_WAIT:.0f} s", after=0.5)
        queue.took()
        return lock

    async def _acquire(self, table: str, table_path: str | None) -> Lock | None:
        """Cancelling us does not end the wait, which continues in a thread: a lock that comes too late is released."""
        acquiring = asyncio.ensure_future(self._locks.acquire(table, LOCK_WAIT, table_path))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            acquiring.add_done_callback(self._give_back)
            raise

    def _give_back(self, acquiring: asyncio.Future[Lock | None]) -> None:
        if acquiring.cancelled() or acquiring.exception() is not None:
            return
        lock = acquiring.result()
        if lock is not None:
            self._release(lock)

    def _release(self, lock: Lock) -> None:
        releasing = asyncio.ensure_future(self._locks.release(lock))
        self._releasing.add(releasing)
        releasing.add_done_callback(self._releasing.discard)
