"""A watch fills its store, also after it was cut, and is not believed until it knows everything again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from blockhouse_operator.adapters import watch as watches
from blockhouse_operator.adapters.kinds import CONFIG_MAP
from blockhouse_operator.adapters.store import Store
from blockhouse_operator.adapters.watch import Watch
from blockhouse_operator.api.labels import CHILD
from e2e.memory.api_server import ApiServer

ERROR = b'{"type": "ERROR", "object": {"code": 410, "message": "too old"}}\n'


class Watched:
    def __init__(self) -> None:
        self.api = ApiServer()
        self.store = Store(CONFIG_MAP, None, CHILD, lambda: 0.0)
        self.observed: list[tuple[str, str]] = []
        self.put("a")
        self.run = Watch(cast(Any, self.api), self.store).run

    def put(self, name: str) -> None:
        self.api.put("configmaps", {"metadata": {"namespace": "ns", "name": name, "labels": dict(CHILD)}})

    def names(self) -> list[str] | None:
        found = self.store.list("ns", CHILD)
        return None if found is None else sorted(item.name for item in found)

    def note(self, sort: str, found: Any) -> None:
        self.observed.append((sort, found["metadata"]["name"]))

    def lists(self) -> int:
        return sum(not request.watches for request in self.api.requests)

    def send(self, line: bytes) -> None:
        self.api.collections["configmaps"].streams[-1].lines.put_nowait(line)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


@pytest.fixture
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    monkeypatch.setattr(watches, "RETRY_SECONDS", 0.0)
    made = Watched()
    task = asyncio.create_task(made.run(made.note))
    await until(lambda: made.names() == ["a"] and bool(made.api.collections["configmaps"].streams))
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_happens_is_in_the_store_before_it_is_a_hint(watched: Watched) -> None:
    watched.put("b")
    await until(lambda: ("ADDED", "b") in watched.observed)
    assert watched.names() == ["a", "b"]

    watched.api.remove("configmaps", ("ns", "a"))
    await until(lambda: ("DELETED", "a") in watched.observed)
    assert watched.names() == ["b"]
    assert watched.observed[0] == ("", "a")


async def test_a_watch_that_the_server_ends_continues_without_a_list(watched: Watched) -> None:
    watched.send(b"")
    await until(lambda: len(watched.api.collections["configmaps"].streams) == 2)
    watched.put("b")
    await until(lambda: watched.names() == ["a", "b"])

    assert watched.lists() == 1


async def test_after_an_error_everything_is_listed_again_and_what_is_gone_is_gone(watched: Watched) -> None:
    watched.api.silent = True
    watched.api.remove("configmaps", ("ns", "a"))
    watched.put("b")
    watched.send(ERROR)
    await until(lambda: not watched.store.complete)
    assert watched.names() is None

    await until(lambda: watched.names() == ["b"])
    assert watched.lists() == 2


async def test_while_the_api_server_is_unavailable_the_store_does_not_answer(watched: Watched) -> None:
    watched.api.down = True
    watched.send(b"")
    await until(lambda: not watched.store.complete)
    assert watched.names() is None

    watched.api.down = False
    await until(lambda: watched.names() == ["a"])


async def test_a_watch_that_a_frozen_server_never_accepts_begins_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "ACCEPTED_SECONDS", 0.01)
    watched.api.frozen = True
    watched.send(b"")
    await until(lambda: not watched.store.complete)

    watched.api.frozen = False
    assert watched.names() is None
