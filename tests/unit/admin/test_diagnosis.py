"""`/history`, `/threads` and `/log-level` over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from blockhouse.contract.diagnosis import Ownership, TakenOverBlock, Threads
from blockhouse.metadata.model import InFlight, Window
from blockhouse_aggregator.admin.diagnosis import DiagnosisRoutes
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState
from blockhouse_aggregator.runtime.stream.ownership_history import KEPT, OwnershipHistory

Client = TestClient[web.Request, web.Application]


@asynccontextmanager
async def serving(history: Sequence[Ownership] = ()) -> AsyncIterator[Client]:
    app = web.Application()
    app.add_routes(DiagnosisRoutes(lambda: history).all())
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


def taken_over(*tables: TableState, position: int = 30) -> StreamState:
    return StreamState("r1", 2, "id", 0, 7, position, Window(), 0, tables)


def history() -> OwnershipHistory:
    clock = itertools.count(1000, 1000)
    return OwnershipHistory(lambda: next(clock))


async def test_the_history_shows_when_a_stream_was_owned_and_what_it_began_with() -> None:
    kept = history()
    left = TableState(3, Block(InFlight(12, 19, 8, 1, 0, 5), Stage.REPLAY, fresh=False))
    kept.began("a/t/0", 2, taken_over(left), {3: "d.t"}.__getitem__)
    kept.ended("a/t/0", 2, "revoked")
    kept.began("a/t/1", 2, taken_over(), str)

    async with serving(kept.all()) as client:
        first, second = map(Ownership.parse, await (await client.get("/history")).json())

    assert first.replays == (TakenOverBlock(table="d.t", begin=12, end=19),)
    assert (first.began_ms, first.ended_ms, first.why) == (1000, 2000, "revoked")
    assert (first.position, first.sequence) == (30, 7)
    assert (second.stream, second.ended_ms, second.why, second.replays) == ("a/t/1", 0, "", ())


def test_each_time_that_a_stream_is_taken_over_again_is_one_of_its_own() -> None:
    kept = history()
    for why in ("CommitUnknown", "revoked"):
        kept.began("a/t/0", 2, taken_over(), str)
        kept.ended("a/t/0", 2, why)
    kept.ended("a/t/0", 2, "never began again")

    assert [entry.why for entry in kept.all()] == ["CommitUnknown", "revoked"]


def test_the_history_is_bounded() -> None:
    kept = history()
    for number in range(KEPT + 5):
        kept.began(f"a/t/{number}", 1, taken_over(), str)

    assert [entry.stream for entry in kept.all()] == [f"a/t/{number}" for number in range(5, KEPT + 5)]


async def test_the_level_is_changed_until_the_process_ends() -> None:
    async with serving() as client:
        put = await client.put("/log-level", json={"level": "debug"})
        got = await (await client.get("/log-level")).json()

    assert (put.status, got) == (200, {"level": "debug"})
    assert logging.getLogger().level == logging.DEBUG


@pytest.mark.parametrize("body", [{"level": "loud"}, {}, {"level": "info", "for": "1h"}, []])
async def test_a_wrong_level_is_refused_and_changes_nothing(body: object) -> None:
    before = logging.getLogger().level
    async with serving() as client:
        put = await client.put("/log-level", json=body)

    assert put.status == 400
    assert logging.getLogger().level == before


async def test_threads_and_tasks_show_where_they_are() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="one that waits")
    thread.start()
    task = asyncio.create_task(asyncio.Event().wait(), name="a task that waits")
    await asyncio.sleep(0)  # so that it has begun to wait
    try:
        async with serving() as client:
            found = Threads.parse(await (await client.get("/threads")).json())
    finally:
        over.set()
        thread.join()
        task.cancel()

    (calls,) = (calls for name, calls in found.threads.items() if name.startswith("one that waits "))
    assert calls[-1].endswith(" wait")
    assert any(call.endswith(" wait") for call in found.tasks["a task that waits"])
