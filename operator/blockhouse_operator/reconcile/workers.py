"""Reconciles of the queue: bounded concurrency, one per key at a time, no failure reaches another key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, Literal, TypeVar

import structlog

from blockhouse.errors import BlockhouseError, Retryable
from blockhouse_operator.adapters.fence import LeadershipLost
from blockhouse_operator.reconcile.patience import bounded
from blockhouse_operator.reconcile.schedule import Schedule

log = structlog.get_logger(__name__)

Key = TypeVar("Key", bound=Hashable)

RECONCILE_SECONDS = 600.0
"""Far longer than a reconcile takes, whatever it waits for: one that stands still must not take its key with it,
unnoticed, for as long as the process lives."""

Reconcile = Callable[[Key], Awaitable[float | None]]
"""Reconcile one key; returns after how many seconds to reconcile it again, None when only an event asks for one."""
Outcome = Literal["done", "failed", "crashed"]
Ended = Callable[[Key, Outcome, float], None]
"""A reconcile of the key ended so after as many seconds."""


class WorkQueue(Generic[Key]):
    """`add` and `hint` keys from anywhere on the loop; `run` reconciles them until it is cancelled or leadership is
    lost. `first` chooses the keys that go before the others (see Schedule).
    """

    def __init__(
        self,
        reconcile: Reconcile[Key],
        *,
        concurrency: int,
        clock: Callable[[], float],
        chance: Callable[[], float],
        first: Callable[[Key], bool] = lambda _: False,
        longest_reconcile: float = RECONCILE_SECONDS,
        ended: Ended[Key] = lambda *_: None,
    ) -> None:
        self._reconcile = reconcile
        self._ended = ended
        self._longest_reconcile = longest_reconcile
        self._concurrency = concurrency
        self._clock = clock
        self._schedule: Schedule[Key] = Schedule(chance, first)
        self._changed = asyncio.Event()
        self.reconciles = 0
        self.failures = 0

    def add(self, key: Key, after: float = 0.0) -> None:
        """The key's own spec changed, or it asked for a reconcile."""
        self._schedule.add(key, self._clock() + after)
        self._changed.set()

    def hint(self, key: Key, after: float) -> None:
        """Something changed that belongs to the key: it may rest before it looks."""
        self._schedule.hint(key, self._clock() + after)
        self._changed.set()

    def overdue(self) -> float:
        """Seconds that the key that waits longest could have been at work already."""
        due = self._schedule.next_at()
        return 0.0 if due is None else max(0.0, self._clock() - due)

    def __len__(self) -> int:
        return len(self._schedule) + len(self._schedule.working)

    async def run(self) -> None:
        """Raises LeadershipLost, and nothing else."""
        at_work: set[asyncio.Task[None]] = set()
        try:
            while True:
                at_work = self._without_ended(at_work)
                while len(at_work) < self._concurrency and (key := self._schedule.take(self._clock())) is not None:
                    at_work.add(asyncio.create_task(self._reconcile_one(key)))
                await self._wait(full=len(at_work) == self._concurrency)
        finally:
            for task in at_work:
                task.cancel()
            await asyncio.gather(*at_work, return_exceptions=True)

    @staticmethod
    def _without_ended(at_work: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
        for task in at_work:
            if task.done():
                task.result()
        return {task for task in at_work if not task.done()}

    async def _wait(self, *, full: bool) -> None:
        """Until a reconcile ends or a key is added, or until the next key is due where another one can begin."""
        self._changed.clear()
        due = None if full else self._schedule.next_at()
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - self._clock())):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _reconcile_one(self, key: Key) -> None:
        self.reconciles += 1
        began = self._clock()
        try:
            outcome = await self._outcome(key)
        finally:
            self._changed.set()
        self._ended(key, outcome, self._clock() - began)

    async def _outcome(self, key: Key) -> Outcome:
        limit = self._longest_reconcile
        try:
            again = await bounded(
                self._reconcile(key),
                limit,
                Retryable(f"its reconcile did not end within {limit:g} s and was cancelled"),
            )
        except LeadershipLost:
            raise
        except Retryable as error:
            self._failed(key, error, error.after)
        except BlockhouseError as error:
            self._failed(key, error)
        except Exception as error:
            # A defect met by one object must not stop the others; it is logged whole and tried again.
            log.exception("reconcile_crashed", key=str(key))
            self._failed(key, error, logged=True)
            return "crashed"
        else:
            self._schedule.finish(key, self._clock())
            if again is not None:
                self._schedule.add(key, self._clock() + again)
            return "done"
        return "failed"

    def _failed(self, key: Key, error: Exception, at_least: float = 0.0, *, logged: bool = False) -> None:
        self.failures += 1
        delay = self._schedule.fail(key, self._clock(), at_least)
        if not logged:
            log.warning("reconcile_failed", key=str(key), error=str(error), retry_in_seconds=round(delay, 1))
