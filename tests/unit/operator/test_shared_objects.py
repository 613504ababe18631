"""What all shards need is requested once for those that ask within seconds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.kinds import SECRET, Kind
from blockhouse_operator.adapters.shared_objects import MAX_AGE, SharedObjects


class Server:
    """An API server: `there` by name; `requests` are the names asked for."""

    def __init__(self) -> None:
        self.there: dict[str, Any] = {"a": {"data": "first"}}
        self.requests: list[str] = []
        self.broken = False
        self.now = 0.0

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        self.requests.append(name)
        await asyncio.sleep(0)
        if self.broken:
            raise Retryable("no answer")
        return self.there.get(name)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def objects(server: Server) -> SharedObjects:
    return SharedObjects(server, lambda: server.now, 60.0)


async def read(objects: SharedObjects, name: str) -> Any:
    return await objects.get(SECRET, "data", name)


async def test_those_that_ask_together_or_within_seconds_share_one_request(
    server: Server, objects: SharedObjects
) -> None:
    found = await asyncio.gather(*(read(objects, "a") for _ in range(200)))
    server.now += MAX_AGE - 1

    assert [*found, await read(objects, "a")] == [{"data": "first"}] * 201
    assert server.requests == ["a"]


@pytest.mark.parametrize(("resync", "age"), [(4.0, 2.0), (60.0, MAX_AGE), (600.0, MAX_AGE)])
async def test_what_changed_is_read_again_after_half_a_resync_or_thirty_seconds(
    server: Server, resync: float, age: float
) -> None:
    objects = SharedObjects(server, lambda: server.now, resync)
    first = await read(objects, "a")
    server.there["a"] = {"data": "second"}
    server.now += age - 0.5
    assert await read(objects, "a") == first

    server.now += 0.5
    assert await read(objects, "a") == {"data": "second"}


async def test_what_is_missing_is_asked_for_each_time(server: Server, objects: SharedObjects) -> None:
    assert await read(objects, "b") is None
    server.there["b"] = {}

    assert await read(objects, "b") == {}


async def test_an_error_reaches_those_that_wait_and_no_later_one(server: Server, objects: SharedObjects) -> None:
    server.broken = True
    with pytest.raises(Retryable):
        await read(objects, "a")
    server.broken = False

    assert await read(objects, "a") == {"data": "first"}


async def test_a_reconcile_that_is_cancelled_ends_no_others_request(server: Server, objects: SharedObjects) -> None:
    first, second = (asyncio.create_task(read(objects, "a")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()

    assert await second == {"data": "first"}
    assert server.requests == ["a"]
