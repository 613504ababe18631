"""Servers that do not answer: known for a while, and never waited for without end."""

from __future__ import annotations

import asyncio

import pytest

from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.reconcile.services import TROUBLE_SECONDS, Troubles


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def well() -> None:
    return


async def dead() -> None:
    raise Retryable("no route to it", after=1.0)


async def test_a_server_that_did_not_answer_is_asked_again_only_after_a_while() -> None:
    clock = Clock()
    troubles = Troubles(clock)
    with pytest.raises(Retryable, match="no route"):
        await troubles.ask("kafka a", dead)
    clock.now = TROUBLE_SECONDS - 1
    with pytest.raises(Retryable, match="no route"):
        await troubles.ask("kafka a", well)
    await troubles.ask("kafka b", well)
    clock.now = TROUBLE_SECONDS
    await troubles.ask("kafka a", well)
    await troubles.ask("kafka a", well)


async def test_a_request_that_never_ends_is_cancelled_and_reported_to_those_who_wait_for_the_same_server() -> None:
    troubles = Troubles(Clock(), longest_answer=0.05)
    asked = 0

    async def stands_still() -> None:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()

    async with asyncio.timeout(10):
        answers = await asyncio.gather(
            *(troubles.ask("zookeeper z:2181", stands_still) for _ in range(3)), return_exceptions=True
        )
    assert asked == 1
    assert [type(answer) for answer in answers] == [Retryable] * 3
    assert all("zookeeper z:2181 has not answered" in str(answer) for answer in answers)


@pytest.mark.parametrize("error", [Permanent("not authorized", reason="Unauthorized"), TimeoutError("its own")])
async def test_another_error_passes_as_it_is_and_is_no_trouble_of_the_server(error: Exception) -> None:
    async def refused() -> None:
        raise error

    troubles = Troubles(Clock())
    with pytest.raises(type(error)) as caught:
        await troubles.ask("kafka a", refused)
    assert caught.value is error
    await troubles.ask("kafka a", well)
