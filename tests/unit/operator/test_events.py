"""Events of one reason about one object are one that counts: a fleet that is created writes few."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from blockhouse.errors import Retryable
from blockhouse_operator.adapters import events
from blockhouse_operator.adapters.events import WINDOW_SECONDS, Events

SHARD = {
    "apiVersion": "v1",
    "kind": "ClickHouseShardIngest",
    "metadata": {"name": "p-0", "namespace": "ns", "uid": "u"},
}


class Server:
    """Events by name; `writes` counts requests."""

    def __init__(self) -> None:
        self.there: dict[str, Any] = {}
        self.writes = 0
        self.broken = False
        self.now = 0.0

    async def create_event(self, event: Any) -> str:
        self.writes += 1
        if self.broken:
            raise Retryable("no answer")
        name = f"event-{self.writes}"
        self.there[name] = dict(event)
        return name

    async def change_event(self, namespace: str, name: str, change: Any) -> None:
        self.writes += 1
        self.there[name] |= change

    def shown(self) -> list[tuple[str, str, int, str]]:
        return [(e["reason"], e["message"], e["count"], e["lastTimestamp"]) for e in self.there.values()]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(events, "TOGETHER_SECONDS", 0.0)
    return Server()


@pytest.fixture
def reported(server: Server) -> Events:
    return Events(cast(Any, server), lambda: server.now)


async def emit(of: Events, message: str, at: str = "t0", *, reason: str = "CreatingTable", uid: str = "u") -> None:
    about = {**SHARD, "metadata": {"name": "p-0", "namespace": "ns", "uid": uid}}
    await of.emit(about, warning=False, reason=reason, message=message, at=at)


async def written() -> None:
    """Once everything that was collected is written."""
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})


async def test_the_first_is_written_at_once_and_those_that_follow_together(server: Server, reported: Events) -> None:
    await emit(reported, "table a", "t0")
    assert server.shown() == [("CreatingTable", "table a", 1, "t0")]
    for number in range(1, 9):
        await emit(reported, "table b" if number % 2 else "table a", f"t{number}")
    await written()

    assert server.shown() == [("CreatingTable", "table a; table b", 9, "t8")]
    assert server.writes == 2


async def test_other_reasons_and_objects_have_their_own(server: Server, reported: Events) -> None:
    await emit(reported, "a")
    await emit(reported, "b", reason="Restarting")
    await emit(reported, "c", uid="other")
    await written()

    assert [count for *_, count, _ in server.shown()] == [1, 1, 1]


async def test_after_a_minute_there_is_another_one(server: Server, reported: Events) -> None:
    await emit(reported, "a")
    server.now += WINDOW_SECONDS
    await emit(reported, "a", "t1")

    assert server.shown() == [("CreatingTable", "a", 1, "t0"), ("CreatingTable", "a", 1, "t1")]


async def test_one_that_was_not_written_is_tried_with_the_next(server: Server, reported: Events) -> None:
    server.broken = True
    await emit(reported, "a")
    server.broken = False
    await emit(reported, "b")

    assert server.shown() == [("CreatingTable", "b", 1, "t0")]


async def test_a_message_is_never_longer_than_the_api_server_takes(server: Server, reported: Events) -> None:
    for number in range(40):
        await emit(reported, f"{number} {'x' * 100}")
    await written()

    assert len(server.shown()[0][1]) == events.LONGEST_MESSAGE
