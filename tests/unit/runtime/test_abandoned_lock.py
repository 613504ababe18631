"""A stream that is dropped while it waits for a table's lock: the wait runs on in a thread, and must leave no lock."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from blockhouse.errors import Retryable
from blockhouse_aggregator.runtime.tables.lock_queue import LockQueue

TABLE = "db.t"


@dataclass
class Granted:
    """The lock, for as long as no owner has released it."""

    valid: bool = True


@dataclass
class ThreadedLocks:
    """Like the real ones: an acquire that has begun ends in its own time, even if no caller waits for it any more."""

    answers: list[asyncio.Future[Granted | None]] = field(default_factory=list)
    released: list[Granted] = field(default_factory=list)

    async def acquire(self, table: str, timeout: float, table_path: str | None = None) -> Granted | None:
        answer: asyncio.Future[Granted | None] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await asyncio.shield(answer)

    async def release(self, lock: Any) -> None:
        self.released.append(lock)


async def use(queue: LockQueue) -> None:
    async with queue.holding(TABLE):
        await asyncio.Event().wait()


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def abandoned() -> tuple[ThreadedLocks, asyncio.Future[Granted | None]]:
    """Locks of which one is being waited for by a stream that was dropped."""
    locks = ThreadedLocks()
    stream = asyncio.ensure_future(use(LockQueue(locks)))
    await turns()
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    return locks, locks.answers[0]


async def test_a_lock_that_comes_after_its_stream_was_dropped_is_given_back() -> None:
    locks, answer = await abandoned()
    lock = Granted()

    answer.set_result(lock)
    await turns()

    assert locks.released == [lock]


@pytest.mark.parametrize("outcome", [None, Retryable("no ZooKeeper session")])
async def test_a_wait_that_ends_without_a_lock_leaves_nothing_to_give_back(outcome: Retryable | None) -> None:
    locks, answer = await abandoned()

    answer.set_exception(outcome) if outcome else answer.set_result(None)
    await turns()

    assert locks.released == []


async def test_a_stream_that_is_dropped_while_it_holds_the_lock_gives_it_back_once() -> None:
    locks = ThreadedLocks()
    stream = asyncio.ensure_future(use(LockQueue(locks)))
    await turns()
    lock = Granted()
    locks.answers[0].set_result(lock)
    await turns()

    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream

    assert locks.released == [lock]


@dataclass
class Queued:
    """A stream that wants the lock, and does what it wants it for until `done`."""

    queue: LockQueue
    got: list[Any]
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        async with self.queue.holding(TABLE) as lock:
            self.got.append((self, lock))
            await self.done.wait()


async def queued(count: int) -> tuple[ThreadedLocks, list[Queued], list[asyncio.Task[None]]]:
    """So many streams of one aggregator, the first of which has just got the lock."""
    locks, got = ThreadedLocks(), list[Any]()
    queue = LockQueue(locks)
    streams = [Queued(queue, got) for _ in range(count)]
    tasks = [asyncio.ensure_future(stream.run()) for stream in streams]
    await turns()
    locks.answers[0].set_result(Granted())
    await turns()
    return locks, streams, tasks


async def test_those_that_waited_when_it_was_taken_have_the_lock_in_turn_and_then_it_is_given_back() -> None:
    locks, streams, tasks = await queued(3)
    late = Queued(streams[0].queue, streams[0].got)
    tasks.append(asyncio.ensure_future(late.run()))
    for stream in streams:
        assert locks.released == []
        stream.done.set()
        await turns()
    assert [stream for stream, _ in late.got] == streams, "in order, and all of them under one lock"
    assert len(locks.released) == 1
    assert len(locks.answers) == 2, "a later caller asks again: others may be waiting"
    locks.answers[1].set_result(Granted())
    late.done.set()
    await asyncio.gather(*tasks)
    assert len(locks.released) == 2


async def test_a_lock_that_is_not_valid_any_more_is_not_handed_on() -> None:
    locks, streams, _ = await queued(2)
    streams[0].got[0][1].valid = False
    streams[0].done.set()
    await turns()
    assert (len(locks.released), len(locks.answers)) == (1, 2)


async def second_dropped(count: int) -> tuple[ThreadedLocks, list[Queued], list[asyncio.Task[None]]]:
    """As `queued`; the first has done, and the second was dropped in the moment in which the lock was kept for it."""
    locks, streams, tasks = await queued(count)
    streams[0].done.set()
    while streams[0].queue._queues[TABLE].kept is None:
        await asyncio.sleep(0)
    tasks[1].cancel()
    return locks, streams, tasks


async def test_a_lock_kept_for_a_stream_that_is_dropped_in_that_moment_is_given_back() -> None:
    locks, streams, tasks = await second_dropped(2)
    await asyncio.wait(tasks)
    await turns()
    assert len(locks.released) == 1
    again = asyncio.ensure_future(use(streams[0].queue))
    await turns()
    assert len(locks.answers) == 2, "it asks for it again"
    again.cancel()


async def test_a_lock_kept_for_a_dropped_stream_goes_to_the_next_one() -> None:
    locks, streams, tasks = await second_dropped(3)
    await turns()
    assert [stream for stream, _ in streams[0].got] == [streams[0], streams[2]]
    streams[2].done.set()
    await asyncio.wait(tasks)
    assert (len(locks.released), len(locks.answers)) == (1, 1)
