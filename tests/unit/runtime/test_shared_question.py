"""One question for all who ask at once, and never an answer that is older than the caller allows."""

from __future__ import annotations

import asyncio

import pytest

from blockhouse.errors import Retryable
from blockhouse_aggregator.runtime.shared_question import SharedQuestion


class Broker:
    """Answers, when released, how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.answering = asyncio.Event()

    async def __call__(self, key: str) -> int:
        self.asked += 1
        number = self.asked
        await self.answering.wait()
        if number == 3:
            raise Retryable("away")
        return number


def test_all_who_ask_while_a_question_is_under_way_share_the_next_one() -> None:
    async def run() -> None:
        broker = Broker()
        question = SharedQuestion(broker)
        first = asyncio.ensure_future(question.ask("t"))
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(question.ask("t")) for _ in range(5)]
        await asyncio.sleep(0)
        assert broker.asked == 1
        broker.answering.set()
        assert await first == 1
        assert await asyncio.gather(*others) == [2] * 5, "the first question began before they asked"
        with pytest.raises(Retryable):
            await question.ask("t")
        assert await question.ask("t", max_age=60) == 2
        assert await question.ask("t") == 4

    asyncio.run(run())


def test_a_cancelled_caller_takes_the_answer_from_no_other() -> None:
    async def run() -> None:
        broker = Broker()
        question = SharedQuestion(broker)
        one, other = (asyncio.ensure_future(question.ask("t")) for _ in range(2))
        await asyncio.sleep(0)
        one.cancel()
        broker.answering.set()
        assert await other == 2

    asyncio.run(run())
