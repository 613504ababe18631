"""The queue on an event loop: what fails alone, and what ends everything."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.fence import LeadershipLost
from blockhouse_operator.reconcile.workers import Ended, WorkQueue


def queue(
    reconcile: Callable[[str], Awaitable[float | None]],
    concurrency: int = 2,
    longest_reconcile: float = 60.0,
    ended: Ended[str] = lambda *_: None,
) -> WorkQueue[str]:
    clock = asyncio.get_running_loop().time
    return WorkQueue(
        reconcile,
        concurrency=concurrency,
        clock=clock,
        chance=lambda: 0.0,
        longest_reconcile=longest_reconcile,
        ended=ended,
    )


async def running(work: WorkQueue[str], until: asyncio.Event) -> None:
    task = asyncio.create_task(work.run())
    try:
        async with asyncio.timeout(10):
            await until.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_key_that_crashes_does_not_stop_the_others() -> None:
    seen: Counter[str] = Counter()
    done = asyncio.Event()

    async def reconcile(key: str) -> None:
        seen[key] += 1
        if key == "bad":
            raise ZeroDivisionError(key)
        if seen["good"] and seen["bad"]:
            done.set()

    work = queue(reconcile)
    work.add("bad")
    work.add("good", after=0.01)
    await running(work, done)

    assert work.failures >= 1
    assert seen["good"] == 1


async def test_a_reconcile_that_stands_still_is_cancelled_and_its_key_is_reconciled_again() -> None:
    seen: Counter[str] = Counter()
    done = asyncio.Event()

    async def reconcile(key: str) -> None:
        seen[key] += 1
        if seen[key] == 1:
            await asyncio.Event().wait()
        done.set()

    work = queue(reconcile, longest_reconcile=0.05)
    work.add("stuck")
    await running(work, done)

    assert (seen["stuck"], work.failures) == (2, 1)


async def test_one_key_never_has_two_reconciles_at_once_and_no_more_run_than_allowed() -> None:
    inside: Counter[str] = Counter()
    reconciles: Counter[str] = Counter()
    done = asyncio.Event()

    async def reconcile(key: str) -> None:
        inside[key] += 1
        assert inside[key] == 1
        assert inside.total() <= 2
        work.add(key)
        await asyncio.sleep(0)
        inside[key] -= 1
        reconciles[key] += 1
        if all(reconciles[k] >= 20 for k in "abc"):
            done.set()

    work = queue(reconcile)
    for key in "abc":
        work.add(key)
    await running(work, done)

    assert work.failures == 0


async def test_a_reconcile_that_asks_for_another_gets_it_without_an_event() -> None:
    reconciles = 0
    done = asyncio.Event()

    async def reconcile(key: str) -> float:
        nonlocal reconciles
        reconciles += 1
        if reconciles == 3:
            done.set()
        return 0.001

    work = queue(reconcile)
    work.add("a")
    await running(work, done)


async def test_a_retryable_failure_comes_back_by_itself() -> None:
    reconciles = 0
    done = asyncio.Event()

    async def reconcile(key: str) -> None:
        nonlocal reconciles
        reconciles += 1
        if reconciles == 1:
            raise Retryable("not yet", after=0.0)
        done.set()

    work = queue(reconcile)
    work.add("a")
    await running(work, done)


async def test_lost_leadership_ends_all_work() -> None:
    async def reconcile(key: str) -> None:
        if key == "a":
            await asyncio.sleep(3600)
        raise LeadershipLost("over")

    work = queue(reconcile)
    work.add("a")
    work.add("b", after=0.01)
    with pytest.raises(LeadershipLost):
        async with asyncio.timeout(10):
            await work.run()


async def test_each_reconcile_is_reported_with_its_outcome_and_its_time() -> None:
    ended: list[tuple[str, str]] = []
    done = asyncio.Event()

    async def reconcile(key: str) -> None:
        if key == "crashes":
            raise ZeroDivisionError(key)
        if key == "fails":
            raise Retryable("not now", after=60)

    def reported(key: str, outcome: str, seconds: float) -> None:
        assert 0 <= seconds < 10
        ended.append((key, outcome))
        if len(ended) == 3:
            done.set()

    work = queue(reconcile, concurrency=1, ended=reported)
    for key in ("well", "fails", "crashes"):
        work.add(key)
    assert work.overdue() >= 0
    await running(work, done)

    assert ended == [("well", "done"), ("fails", "failed"), ("crashes", "crashed")]


async def test_a_key_that_no_worker_takes_is_overdue() -> None:
    now = 100.0
    work: WorkQueue[str] = WorkQueue(_never, concurrency=1, clock=lambda: now, chance=lambda: 0.0)
    assert work.overdue() == 0
    work.add("later", after=30)
    assert work.overdue() == 0
    now = 145.0
    assert work.overdue() == 15


async def _never(key: str) -> float | None:
    raise AssertionError(key)
