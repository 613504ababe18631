"""A long wait is reported while it lasts, and no longer."""

from __future__ import annotations

import asyncio

import pytest

from blockhouse_aggregator.rollout.waiting import Waiting


async def test_a_line_states_what_is_waited_for_why_and_how_long_at_most() -> None:
    lines: asyncio.Queue[str] = asyncio.Queue()

    async with Waiting("every replica has it", 120, lines.put_nowait, every=0.001) as waiting:
        assert await lines.get() == "waiting until every replica has it (0 s, at most 120 s)"
        waiting.why = "r2 is late"
        while "r2 is late" not in (line := await lines.get()):
            pass

    assert line == "waiting until every replica has it (0 s, at most 120 s): r2 is late"


async def test_it_ends_with_the_wait_and_hides_no_error() -> None:
    lines: list[str] = []

    with pytest.raises(TimeoutError):
        async with Waiting("it is there", 1, lines.append, every=0.001), asyncio.timeout(0.05):
            await asyncio.Event().wait()
    assert lines
    before = len(lines)
    await asyncio.sleep(0.01)
    assert len(lines) == before
