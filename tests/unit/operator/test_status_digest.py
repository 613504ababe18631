"""An aggregator's status is sent and read again only when something changed that the operator decides by."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from blockhouse.contract.aggregator import (
    BlockInFlight,
    Phase,
    RestartStatus,
    StatusPage,
    StopReason,
    StreamCounters,
    StreamStatus,
    TableStatus,
    counters_of,
)
from blockhouse.contract.decisive import digest
from blockhouse.errors import Retryable
from blockhouse.serving import Answer, HttpServer, respond, respond_unless_known
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.adapters.pipeline_http import AdminLogin, PipelineHttp

COUNTS = dict.fromkeys(StreamCounters.model_fields, 0)


def stream(**more: Any) -> StreamStatus:
    counters = counters_of({**COUNTS, "blocks": 7, "rounds": 3})
    known: dict[str, Any] = {"position": 5, "log_end": 9, "lag": 4, "seq": 2, "in_flight": (), "lagging": ()}
    return StreamStatus(
        **{"stream": "a/t/0", "epoch": 1, "state": Phase.CONSUME, "counters": counters, "alarms": (), **known, **more}
    )


def table(**more: Any) -> TableStatus:
    return TableStatus(
        **{"name": "db.t", "id": 1, "revision": 2, "held": "", "why": "", "rollout": "", "hazards": (), **more}
    )


def page(**more: Any) -> StatusPage:
    known: dict[str, Any] = {"pipeline": "p", "shard": "0", "replica": "r", "ready": True, "clusters": {"a": "ok"}}
    return StatusPage(**{**known, "streams": (stream(),), "tables": (table(),), **more})


def block(name: str = "db.t") -> BlockInFlight:
    return BlockInFlight(table=name, begin=1, end=2, messages=1, stage="sealed", reason="")


@pytest.mark.parametrize(
    "same",
    [
        {"streams": (stream(position=99, log_end=99, lag=0, seq=77, epoch=1, lag_seconds=3.0),)},
        {"streams": (stream(in_flight=(block(),)),)},
        {"streams": (stream(counters=counters_of({**COUNTS, "blocks": 8, "rounds": 4})),)},
    ],
    ids=["positions", "in-flight", "counters"],
)
def test_what_changes_with_every_message_changes_no_digest(same: dict[str, Any]) -> None:
    assert digest(page(**same)) == digest(page())


@pytest.mark.parametrize(
    "other",
    [
        {"ready": False},
        {"suspended": True},
        {"restart": RestartStatus(demanded=4, seen=3)},
        {"away": "its secret cannot be read"},
        {"clusters": {"a": "no answer"}},
        {"streams": ()},
        {"streams": (stream(state=Phase.REPLAY),)},
        {"streams": (stream(stream="a/t/1"),)},
        {"streams": (stream(state=Phase.STOPPED, stopped=StopReason(reason="PositionLost", message="m")),)},
        {"streams": (stream(counters=counters_of(COUNTS)),)},
        {"tables": (table(revision=3),)},
        {"tables": (table(held="TableChanged", why="a column is gone"),)},
        {"tables": (table(rollout="operator", held_since_ms=5),)},
        {"tables": (table(as_declared="of another declaration"),)},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_the_operator_decides_by_changes_it(other: dict[str, Any]) -> None:
    assert digest(page(**other)) != digest(page())


def test_a_block_in_flight_of_a_paused_table_is_waited_for_so_it_changes_it() -> None:
    held = {"tables": (table(rollout="operator"), table(name="db.u"))}
    still = digest(page(**held))

    assert digest(page(**held, streams=(stream(in_flight=(block(),)),))) != still
    assert digest(page(**held, streams=(stream(in_flight=(block("db.u"),)),))) == still


class Aggregator(HttpServer):
    """`tags`: whether it knows of ETags; an earlier version does not. `codes` are those it answered with, 0 where it
    answered nothing in time, which happens `silent` times."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1", 0, CollectorRegistry())
        self.page = page()
        self.tags = True
        self.codes: list[int] = []
        self.silent = 0
        self.ending = asyncio.Event()

    def health(self) -> Answer:
        return Answer(True, "ok")

    readiness = health

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/status", self._status)]

    async def _status(self, request: web.Request) -> web.Response:
        if self.silent:
            self.silent -= 1
            self.codes.append(0)
            await self.ending.wait()
        answer = respond_unless_known(request, self.page, digest(self.page)) if self.tags else respond(self.page)
        self.codes.append(answer.status)
        return answer


@pytest.fixture
async def aggregator() -> AsyncIterator[Aggregator]:
    server = Aggregator()
    await server.start()
    yield server
    server.ending.set()
    await server.stop()


@pytest.fixture
async def client() -> AsyncIterator[PipelineHttp]:
    made = PipelineHttp(OpenFence())
    yield made
    await made.close()


@pytest.fixture
async def impatient() -> AsyncIterator[PipelineHttp]:
    made = PipelineHttp(OpenFence(), seconds=1.0)
    yield made
    await made.close()


async def test_a_status_is_sent_again_only_when_it_changed(aggregator: Aggregator, client: PipelineHttp) -> None:
    base = f"http://127.0.0.1:{aggregator.port}"
    first = await client.aggregator(base, AdminLogin(), whole=False)
    assert await client.aggregator(base, AdminLogin(), whole=False) is first
    aggregator.page = page(ready=False)
    changed = await client.aggregator(base, AdminLogin(), whole=False)

    assert (first.ready, changed.ready) == (True, False)
    assert await client.aggregator(base, AdminLogin(), whole=False) is changed
    assert aggregator.codes == [200, 304, 200, 304]


async def test_who_is_to_take_a_step_gets_the_whole_status(aggregator: Aggregator, client: PipelineHttp) -> None:
    base = f"http://127.0.0.1:{aggregator.port}"
    await client.aggregator(base, AdminLogin(), whole=False)
    aggregator.page = page(streams=(stream(in_flight=(block(),)),))
    seen = await client.aggregator(base, AdminLogin())

    assert seen.streams[0].in_flight == {"db.t"}
    assert aggregator.codes == [200, 200]


async def test_no_stream_is_called_drained_by_an_answer_that_may_be_old(
    aggregator: Aggregator, client: PipelineHttp
) -> None:
    """A shard is removed once all its streams are drained: more may have been produced since, without a new digest."""
    base = f"http://127.0.0.1:{aggregator.port}"
    aggregator.page = page(streams=(stream(lag=0),))

    looks = [await client.aggregator(base, AdminLogin(), whole=whole) for whole in (False, True, False)]

    assert [look.streams[0].drained for look in looks] == [False, True, False]
    assert aggregator.codes == [200, 200, 304]


async def test_an_aggregator_of_an_earlier_version_is_understood(aggregator: Aggregator, client: PipelineHttp) -> None:
    base = f"http://127.0.0.1:{aggregator.port}"
    aggregator.tags = False
    await client.aggregator(base, AdminLogin(), whole=False)
    aggregator.page = page(ready=False)

    assert not (await client.aggregator(base, AdminLogin(), whole=False)).ready
    assert aggregator.codes == [200, 200]


@pytest.mark.parametrize("whole", [False, True])
async def test_an_aggregator_that_misses_one_request_is_asked_again(
    aggregator: Aggregator, impatient: PipelineHttp, whole: bool
) -> None:
    """Four replicas on a node that stands still for a moment took `Ready` from their shard, and gave it back."""
    base = f"http://127.0.0.1:{aggregator.port}"
    aggregator.silent = 1

    assert (await impatient.aggregator(base, AdminLogin(), whole=whole)).ready
    assert aggregator.codes == [0, 200]


async def test_one_that_is_known_to_be_silent_is_asked_once_until_it_answers(
    aggregator: Aggregator, impatient: PipelineHttp
) -> None:
    """In an outage of a data centre every reconcile waits for its silent replicas: not twice, each time."""
    base = f"http://127.0.0.1:{aggregator.port}"
    aggregator.silent = 3
    for _ in range(2):
        with pytest.raises(Retryable, match="does not answer"):
            await impatient.aggregator(base, AdminLogin())
    assert aggregator.codes == [0, 0, 0]

    assert (await impatient.aggregator(base, AdminLogin())).ready
    aggregator.silent = 1
    assert (await impatient.aggregator(base, AdminLogin())).ready
    assert aggregator.codes == [0, 0, 0, 200, 0, 200]
