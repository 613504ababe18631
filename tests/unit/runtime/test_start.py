"""What a start waits for is on the status page from its beginning to its end, with what the last try met."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from blockhouse.contract.notices import StartWait
from blockhouse.errors import Permanent, Retryable
from blockhouse_aggregator.runtime.process.start import Start
from tests.unit.admin.stand_in import StandIn, served

NOW = 1_790_000_000_000


class Server:
    """Refuses the first question, once it may."""

    def __init__(self) -> None:
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self.error: Exception = Retryable("clickhouse c:9000: ClickHouse error 192: Unknown user loader", after=0.01)
        self.tries = 0

    async def ask(self) -> None:
        self.tries += 1
        if self.tries == 1:
            self.asked.set()
            await self.answers.wait()
            raise self.error


async def test_a_start_names_what_it_waits_for_and_since_when() -> None:
    server, ending, waits = Server(), asyncio.Event(), []
    start = Start(ending, lambda: NOW)
    going = asyncio.ensure_future(start.patiently("catalog", server.ask))
    await server.asked.wait()
    waits.append(start.waits)
    server.answers.set()
    while start.waits is not None and not start.waits.error:
        await asyncio.sleep(0)
    waits.append(start.waits)
    ending.set()
    await going

    assert waits == [
        StartWait(what="catalog", since_ms=NOW, error=""),
        StartWait(what="catalog", since_ms=NOW, error=str(server.error)),
    ]
    assert start.waits is None


async def test_what_will_never_succeed_ends_the_start() -> None:
    server = Server()
    server.error = Permanent("no such database", reason="NoDatabase")
    server.answers.set()
    start = Start(asyncio.Event(), lambda: NOW)
    with pytest.raises(Permanent):
        await start.patiently("catalog", server.ask)
    assert start.waits is None


async def test_status_and_readiness_show_what_is_waited_for() -> None:
    aggregator = StandIn()
    aggregator.ready = False
    aggregator.waits = StartWait(what="catalog", since_ms=NOW, error="error 192: Unknown user loader")
    async with served(aggregator) as url, aiohttp.ClientSession() as client:
        async with client.get(url + "/status") as answer:
            page = await answer.json()
        async with client.get(url + "/readyz") as answer:
            assert answer.status == 503
            lines = (await answer.text()).splitlines()
    assert page["waits"] == {"what": "catalog", "sinceMs": NOW, "error": "error 192: Unknown user loader"}
    assert page["partitions"] == {"a/events": 2}
    assert lines[:2] == ["starting", "waits for catalog since 2026-09-21T14:13:20Z: error 192: Unknown user loader"]
