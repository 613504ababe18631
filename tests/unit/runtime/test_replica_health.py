"""When a replica's fault has lasted long enough for another one to take the streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from blockhouse_aggregator.runtime.process.replica_health import REPORT_HOLDS, SILENT, ReplicaHealth

HANDOVER_AFTER = 10.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the running loop's time forward."""
    offset = 0.0
    real = asyncio.BaseEventLoop.time
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda loop: real(loop) + offset)

    def advance(seconds: float) -> None:
        nonlocal offset
        offset += seconds

    return advance


async def fit() -> str:
    return ""


async def test_a_fault_that_only_inserts_meet_lasts_between_their_tries(clock: Any) -> None:
    """A full disk: the server answers every question, and every insert fails, some seconds apart."""
    health = ReplicaHealth(fit, HANDOVER_AFTER)
    for _ in range(3):
        health.report("replica", "not enough space")
        await health.look()
        clock(5.0)
    await health.look()
    assert health.unfit == "not enough space"
    assert health.hand_over


async def test_a_stored_block_ends_the_fault_at_once(clock: Any) -> None:
    health = ReplicaHealth(fit, HANDOVER_AFTER)
    health.report("replica", "read-only")
    await health.look()
    clock(HANDOVER_AFTER + 1)
    health.report("", "")
    await health.look()
    assert (health.unfit, health.hand_over) == ("", False)


async def test_a_fault_that_no_insert_meets_any_more_is_forgotten(clock: Any) -> None:
    health = ReplicaHealth(fit, HANDOVER_AFTER)
    health.report("replica", "read-only")
    clock(REPORT_HOLDS + 1)
    await health.look()
    assert not health.unfit


async def test_faults_of_the_shard_hand_nothing_over(clock: Any) -> None:
    health = ReplicaHealth(fit, HANDOVER_AFTER)
    health.report("shard", "too few replicas live")
    await health.look()
    clock(HANDOVER_AFTER + 1)
    await health.look()
    assert not health.hand_over


async def test_a_replica_that_does_not_answer_is_shown_before_the_question_times_out(clock: Any) -> None:
    never = asyncio.Event()

    async def silent() -> str:
        await never.wait()
        return ""

    health = ReplicaHealth(silent, HANDOVER_AFTER)
    looking = asyncio.create_task(health.look())
    await asyncio.sleep(0)
    assert health.problem == ""
    clock(SILENT + 1)
    assert health.problem == "the replica has not answered for 5 s"
    never.set()
    await looking
    assert health.problem == ""
