"""Driver and task believe each other only when both know the key, and then speak each system's own messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Literal

import pytest
from pydantic import Field, TypeAdapter
from structlog.testing import capture_logs

from blockhouse.config.pipeline import Gate
from blockhouse.errors import Retryable
from blockhouse.gate.client import GateAddress, GateConnection
from blockhouse.gate.messages import Greeting, Hello, Message
from blockhouse.gate.server import GateServer, TaskSession

KEY = b"of this application"


class Copied(Message):
    type: Literal["copied"] = "copied"
    records: int


class Copy(Message):
    type: Literal["copy"] = "copy"
    begin: int


class Rest(Message):
    type: Literal["rest"] = "rest"


class Welcome(Greeting):
    type: Literal["welcome"] = "welcome"
    limit: int


FromTask = Annotated[Hello | Copied, Field(discriminator="type")]
Order = Annotated[Copy | Rest, Field(discriminator="type")]
Session = TaskSession[FromTask, Welcome | Copy | Rest]
Connection = GateConnection[Copied, Order, Welcome]
FROM_TASK: TypeAdapter[FromTask] = TypeAdapter(FromTask)
ORDERS: TypeAdapter[Order] = TypeAdapter(Order)


@asynccontextmanager
async def listening(accept: Callable[[Session], Awaitable[None]]) -> AsyncIterator[GateAddress]:
    gate: GateServer[FromTask, Welcome | Copy | Rest] = GateServer(Gate(), KEY, FROM_TASK, accept)
    host, port = await gate.start()
    try:
        yield GateAddress(host, port, KEY)
    finally:
        await gate.stop()


def connect(address: GateAddress) -> Connection:
    return GateConnection(address, "events/3", 7, 41, from_driver=ORDERS, welcome=Welcome)


async def refuse(_: Session) -> None:
    """As a driver that does not expect the lease."""


async def test_a_task_is_welcomed_takes_orders_and_answers_until_the_driver_ends_the_session() -> None:
    heard: list[object] = []

    async def accept(session: Session) -> None:
        heard.append((session.hello.work, session.hello.epoch, session.hello.lease))
        session.send(Welcome(proof=session.proof, limit=5))
        session.send(Copy(begin=100))
        session.send(Rest())
        heard.append(await session.receive())
        session.close()

    def task(address: GateAddress) -> list[object]:
        connection = connect(address)
        connection.send(Copied(records=9))
        return [connection.welcome.limit, *connection.messages()]

    async with listening(accept) as address:
        seen = await asyncio.wait_for(asyncio.to_thread(task, address), 60)

    assert seen == [5, Copy(begin=100), Rest()]
    assert heard == [("events/3", 7, 41), Copied(records=9)]


async def test_the_driver_learns_that_a_task_is_gone() -> None:
    gone: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def accept(session: Session) -> None:
        session.send(Welcome(proof=session.proof, limit=5))
        gone.set_result(await session.receive())

    def task(address: GateAddress) -> None:
        connect(address).close()

    async with listening(accept) as address:
        await asyncio.to_thread(task, address)
        assert await asyncio.wait_for(gone, 60) is None


async def test_a_lease_that_is_not_expected_is_worth_another_try() -> None:
    async with listening(refuse) as address:
        with pytest.raises(Retryable, match="refused lease 41 of events/3 in epoch 7"):
            await asyncio.to_thread(connect, address)


async def test_a_task_without_the_key_is_heard_by_no_owner() -> None:
    accepted: list[Session] = []

    async def accept(session: Session) -> None:
        accepted.append(session)

    async with listening(accept) as address:
        stranger = GateAddress(address.host, address.port, b"of another application")
        with capture_logs() as logs, pytest.raises(Retryable):
            await asyncio.to_thread(connect, stranger)

    assert accepted == []
    assert [(entry["event"], entry["why"]) for entry in logs] == [("gate.refused", "wrong proof")]


@pytest.mark.parametrize("answer", [Welcome(proof="of another", limit=5), Rest()], ids=["wrong proof", "no welcome"])
async def test_a_task_obeys_no_driver_without_the_key(answer: Welcome | Rest) -> None:
    async def accept(session: Session) -> None:
        session.send(answer)
        await session.receive()

    async with listening(accept) as address:
        with pytest.raises(Retryable, match="is not the driver"):
            await asyncio.to_thread(connect, address)


async def test_an_error_of_the_drivers_own_code_is_not_blamed_on_the_peer() -> None:
    async def accept(_: Session) -> None:
        raise ValueError("ours")

    async with listening(accept) as address:
        with capture_logs() as logs, pytest.raises(Retryable):
            await asyncio.to_thread(connect, address)

    found = [(entry["event"], entry["log_level"], "exc_info" in entry) for entry in logs]
    assert ("gate.internal_error", "error", True) in found
    assert "gate.session_failed" not in [event for event, *_ in found]


async def test_what_no_task_sends_is_the_peers_fault_and_no_error() -> None:
    async with listening(refuse) as address:
        with capture_logs() as logs:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await reader.readline()
            writer.write(b"GET / HTTP/1.1\r\n")
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()

    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("gate.session_failed", "warning")]
