"""The simulation itself: it replays exactly, dead processes stay dead, and random worlds end without harm."""

from __future__ import annotations

import asyncio
import inspect
import os
from secrets import randbelow

from tests.simulation.clock import Process, SimLoop
from tests.simulation.run import simulate

SEED = int(os.environ.get("SEED") or randbelow(1 << 31))
WORLDS = 12


def test_random_worlds_end_without_harm() -> None:
    """A taste of `make simulate`; a failure is shown by `python -m tests.simulation --seed N`."""
    print(f"SEED={SEED}")
    harms = {seed: outcome.harm for seed in range(SEED, SEED + WORLDS) if (outcome := simulate(seed)).harm is not None}
    assert harms == {}


def test_a_run_is_a_function_of_its_seed() -> None:
    for seed in (3, 17):
        first, second = simulate(seed), simulate(seed, keep_story=True)
        assert (first.trace, first.steps, first.seconds) == (second.trace, second.steps, second.seconds)
        assert second.story


def test_different_seeds_make_different_worlds() -> None:
    assert simulate(3).trace != simulate(4).trace


def test_a_frozen_process_continues_where_it_stood_and_a_dead_one_never() -> None:
    loop, heard = SimLoop(), list[str]()
    processes = {name: Process(name) for name in ("running", "frozen", "dead")}

    async def tick(name: str) -> None:
        try:
            for second in range(3):
                await asyncio.sleep(1)
                heard.append(f"{name} {second} at {loop.time():.0f}")
        finally:
            heard.append(f"{name} ends")

    for name, process in processes.items():
        loop.spawn(tick(name), process)
    loop.run(1.5, lambda: False)
    processes["frozen"].frozen = True
    processes["dead"].alive = False
    loop.run(10, lambda: False)
    loop.thaw(processes["frozen"])
    loop.run(20, lambda: False)

    assert [line for line in heard if line.startswith("dead")] == ["dead 0 at 1"]
    assert [line for line in heard if line.startswith("frozen")] == [
        "frozen 0 at 1", "frozen 1 at 10", "frozen 2 at 11", "frozen ends"
    ]  # fmt: skip
    assert "running 2 at 3" in heard


def test_nothing_of_a_world_that_is_over_runs_any_more_wherever_it_was_started() -> None:
    """Else the garbage collector runs it, in the middle of whatever test is next."""
    loop = SimLoop()

    async def wait() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(100)

    from_outside = loop.spawn(wait())
    inside: list[asyncio.Task[None]] = []
    loop.call_soon(lambda: inside.append(loop.spawn(wait())))
    loop.run(1, lambda: False)
    loop.bury()
    assert [inspect.getcoroutinestate(task.get_coro()) for task in (from_outside, *inside)] == [inspect.CORO_CLOSED] * 2
