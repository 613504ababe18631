"""Turns of this aggregator's own streams at the lock of a table.

They queue here before one of them asks ZooKeeper, and whoever has got the lock hands it on to those that wait: taking
it costs several requests, and an aggregator of many streams must not stand in the shard's queue anew for each.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from blockhouse.errors import Retryable
from blockhouse_aggregator.runtime.ports import Lease, Locks

LOCK_WAIT = 30.0


@dataclass(slots=True)
class _Queue:
    """Who waits for one table. `kept` is the lock between two turns; `left` is how many more turns it may be kept for:
    each of those that waited when it was taken has one, so that other aggregators get theirs."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    kept: Lease | None = None
    left: int = 0


class TableQueue:
    """Used on the event loop only."""

    def __init__(self, locks: Locks) -> None:
        self._locks = locks
        self._queues: dict[str, _Queue] = defaultdict(_Queue)
        self._releasing: set[asyncio.Future[None]] = set()

    @asynccontextmanager
    async def holding(self, table: str) -> AsyncIterator[Lease]:
        """Hold the shard-wide lock of `table`. Raises Retryable when it cannot be had within LOCK_WAIT seconds."""
        queue = self._queues[table]
        await self._wait_for_turn(queue)
        try:
            lease = await self._lease(table, queue)
            try:
                yield lease
            finally:
                if queue.left > 0 and queue.waiting > 0 and lease.valid:
                    queue.left -= 1
                    queue.kept = lease
                else:
                    await asyncio.shield(self._locks.release(lease))
        finally:
            queue.turn.release()

    async def _wait_for_turn(self, queue: _Queue) -> None:
        queue.waiting += 1
        try:
            await queue.turn.acquire()
        except asyncio.CancelledError:
            # It was kept for us, perhaps, and nobody else is here to take it or to give it back.
            if queue.kept is not None and queue.waiting == 1 and not queue.turn.locked():
                self._release(queue.kept)
                queue.kept = None
            raise
        finally:
            queue.waiting -= 1

    async def _lease(self, table: str, queue: _Queue) -> Lease:
        kept, queue.kept = queue.kept, None
        if kept is not None:
            return kept
        lease = await self._acquire(table)
        if lease is None:
            raise Retryable(f"lock of table {table} not free within {LOCK_WAIT:.0f} s", after=0.5)
        queue.left = queue.waiting
        return lease

    async def _acquire(self, table: str) -> Lease | None:
        """Cancelling us does not end the wait, which goes on in a thread: a lock that comes too late is given back."""
        acquiring = asyncio.ensure_future(self._locks.acquire(table, LOCK_WAIT))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            acquiring.add_done_callback(self._give_back)
            raise

    def _give_back(self, acquiring: asyncio.Future[Lease | None]) -> None:
        if acquiring.cancelled() or acquiring.exception() is not None:
            return
        lease = acquiring.result()
        if lease is not None:
            self._release(lease)

    def _release(self, lease: Lease) -> None:
        releasing = asyncio.ensure_future(self._locks.release(lease))
        self._releasing.add(releasing)
        releasing.add_done_callback(self._releasing.discard)
