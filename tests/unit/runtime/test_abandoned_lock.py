"""A stream that is dropped while it waits for a table's lock: the wait goes on in a thread, and must leave no lock."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from blockhouse.errors import Retryable
from blockhouse_aggregator.runtime.storing import TableQueue

TABLE = "db.t"


@dataclass
class Granted:
    """The lock, for as long as nobody has given it back."""

    valid: bool = True


@dataclass
class ThreadedLocks:
    """Like the real ones: an acquire that has begun ends in its own time, whoever still waits for it."""

    answers: list[asyncio.Future[Granted | None]] = field(default_factory=list)
    released: list[Granted] = field(default_factory=list)

    async def acquire(self, table: str, timeout: float) -> Granted | None:
        answer: asyncio.Future[Granted | None] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await asyncio.shield(answer)

    async def release(self, lease: Any) -> None:
        self.released.append(lease)


async def use(queue: TableQueue) -> None:
    async with queue.holding(TABLE):
        await asyncio.Event().wait()


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def abandoned() -> tuple[ThreadedLocks, asyncio.Future[Granted | None]]:
    """Locks of which one is being waited for by a stream that was dropped."""
    locks = ThreadedLocks()
    stream = asyncio.ensure_future(use(TableQueue(locks)))
    await turns()
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    return locks, locks.answers[0]


async def test_a_lock_that_comes_after_its_stream_was_dropped_is_given_back() -> None:
    locks, answer = await abandoned()
    lease = Granted()

    answer.set_result(lease)
    await turns()

    assert locks.released == [lease]


@pytest.mark.parametrize("outcome", [None, Retryable("no ZooKeeper session")])
async def test_a_wait_that_ends_without_a_lock_leaves_nothing_to_give_back(outcome: Retryable | None) -> None:
    locks, answer = await abandoned()

    answer.set_exception(outcome) if outcome else answer.set_result(None)
    await turns()

    assert locks.released == []


async def test_a_stream_that_is_dropped_while_it_holds_the_lock_gives_it_back_once() -> None:
    locks = ThreadedLocks()
    stream = asyncio.ensure_future(use(TableQueue(locks)))
    await turns()
    lease = Granted()
    locks.answers[0].set_result(lease)
    await turns()

    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream

    assert locks.released == [lease]
