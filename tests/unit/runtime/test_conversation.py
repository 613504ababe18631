"""The conversation with a task: what goes wrong in the driver while a task waits for it is loud."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from blockhouse.errors import Retryable
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.gate.messages import BlockKey, Go, Grant, Ready
from blockhouse_aggregator.runtime.stream.conversation import Conversation
from blockhouse_aggregator.runtime.stream.current_task import CurrentTask
from tests.unit.runtime.configs import CONFIG

BLOCK = BlockKey(table="default.clicks", begin=100, end=103)
GRANT = Grant(block=BLOCK, token="a:1", deadline_ms=60_000)


class Task:
    """A task at the other end of the gate: it asks for the proof of what it is granted, and never answers more."""

    proof = "proof"

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self._received: asyncio.Queue[Any] = asyncio.Queue()

    def send(self, message: Any) -> None:
        self.sent.append(message)
        if isinstance(message, Grant):
            self._received.put_nowait(Ready(block=message.block))

    async def receive(self) -> Any:
        return await self._received.get()

    def close(self) -> None: ...


class Owner:
    """Of a stream, with only what a conversation that gives no orders asks of it."""

    stream = "a/events-01/0"

    def __init__(self, prove: Exception) -> None:
        self.context = SimpleNamespace(config=CONFIG, now_ms=lambda: 0)
        self.task = CurrentTask(self.stream, Faults(), self._prove)
        self.wake = asyncio.Event()
        self.failures: asyncio.Queue[BaseException] = asyncio.Queue()
        self._raised = prove

    async def _prove(self, lease: Any) -> None:
        raise self._raised

    def gathers(self, now: bool) -> None: ...

    def failed(self, error: BaseException) -> None:
        self.failures.put_nowait(error)


async def _no_orders(_: Conversation) -> None:
    await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def no_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conversation, "_give_orders", _no_orders)
    monkeypatch.setattr(Conversation, "__post_init__", lambda _: None)


async def _asked(owner: Owner, task: Task) -> list[asyncio.Task[Any]]:
    """A grant is with the task, which has asked whether it may begin."""
    conversation = Conversation(cast(Any, owner), cast(Any, task), lambda: False, cast(Any, None), cast(Any, None))
    running = asyncio.ensure_future(conversation.run())
    while not owner.task.present:
        await asyncio.sleep(0)
    return [running, asyncio.ensure_future(owner.task.insert(GRANT, cast(Any, None)))]


async def _end(running: list[asyncio.Task[Any]]) -> None:
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_a_defect_while_an_insert_is_proven_fails_the_stream() -> None:
    """Otherwise the task waits in vain, and its block is tried again and again without an alarm."""
    owner, task = Owner(KeyError("of our own")), Task()

    running = await _asked(owner, task)
    error = await asyncio.wait_for(owner.failures.get(), 5)

    assert repr(error) == "KeyError('of our own')"
    assert not [message for message in task.sent if isinstance(message, Go)]
    await _end(running)


async def test_what_is_not_proven_is_refused_and_fails_nothing() -> None:
    owner, task = Owner(Retryable("the lock is lost")), Task()

    with capture_logs() as logs:
        running = await _asked(owner, task)
        while not (answers := [message for message in task.sent if isinstance(message, Go)]):
            await asyncio.sleep(0)

    assert [(answer.block, answer.refusal) for answer in answers] == [(BLOCK, "the lock is lost")]
    assert owner.failures.empty()
    assert [line["event"] for line in logs] == ["insert.unproven"]
    await _end(running)
