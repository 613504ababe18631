"""`/drain` and the acceptance of a stream's stop over HTTP: recorded with who and why, or refused with a reason."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from blockhouse_aggregator.coordination.markers import Decision
from tests.unit.admin.stand_in import CONSUMES, NOW, STOPPED, StandIn, served

WHO: dict[str, Any] = {"by": "ann", "why": "a disk is replaced"}
ACCEPT = {"by": "ann", "why": "everything below is stored", "reason": "OffsetsReset"}


async def ask(
    aggregator: StandIn, method: str, path: str, body: Any = None, token_file: Path | None = None
) -> tuple[int, Any]:
    async with (
        served(aggregator, token_file) as url,
        aiohttp.ClientSession() as client,
        client.request(method, url + path, json=body) as answer,
    ):
        return answer.status, await (answer.json() if answer.status == 200 else answer.text())


async def test_a_drain_is_recorded_with_who_and_why_and_ends_when_it_is_resumed() -> None:
    aggregator = StandIn()
    none = {"drained": False, "by": "", "why": "", "sinceMs": 0, "streams": 2, "inFlight": 1}
    assert await ask(aggregator, "GET", "/drain") == (200, none)
    status, state = await ask(aggregator, "PUT", "/drain", WHO)
    assert (status, state) == (200, none | WHO | {"drained": True, "sinceMs": NOW})
    assert aggregator.why_out == "a disk is replaced (ann)"
    again = await ask(aggregator, "PUT", "/drain", {"by": "bob", "why": "another"})
    assert again[1]["by"] == "ann", "who was first counts"
    assert await ask(aggregator, "DELETE", "/drain", {"by": "bob"}) == (200, none)


async def test_what_is_recorded_is_followed_in_order_and_is_found_again_by_the_next_process() -> None:
    aggregator = StandIn()
    followed: asyncio.Queue[bool] = asyncio.Queue()
    watching = asyncio.create_task(aggregator.draining().watch(followed.put))
    await aggregator.draining().drain("ann", "a reason")
    assert await followed.get() is True
    restarted = StandIn()
    restarted.fakes.drain = aggregator.fakes.drain
    await restarted.draining().start()
    assert restarted.why_out == "a reason (ann)"
    await aggregator.draining().resume("ann")
    assert await followed.get() is False
    watching.cancel()


async def test_a_stop_is_accepted_with_who_and_why() -> None:
    aggregator = StandIn()
    path = f"/streams/{STOPPED}/acceptance"
    status, answer = await ask(aggregator, "PUT", path, ACCEPT | {"offset": 40})
    assert status == 200
    assert answer["would"] == "start afresh at offset 40 of [10, 100)"
    recorded = Decision(action="accept OffsetsReset from 40", by="ann", at_ms=NOW, why="everything below is stored")
    assert aggregator.fakes.decisions == {str(STOPPED): recorded}


@pytest.mark.parametrize(
    ("stream", "change", "status", "text"),
    [
        (str(CONSUMES), {}, 409, "does not stand still"),
        (str(STOPPED), {"reason": "LogTruncated"}, 409, "for another reason: OffsetsReset"),
        (str(STOPPED), {"offset": 101}, 409, "beyond the log"),
        (str(STOPPED), {"offset": -1}, 400, "offset"),
        (str(STOPPED), {"why": ""}, 400, "why"),
        (str(STOPPED), {"by": ""}, 400, "by"),
        ("a/events/7", {}, 404, "does not own"),
        ("a/events/x", {}, 404, "does not own"),
    ],
)
async def test_an_acceptance_that_does_not_fit_is_refused_and_records_nothing(
    stream: str, change: dict[str, Any], status: int, text: str
) -> None:
    aggregator = StandIn()
    answer = await ask(aggregator, "PUT", f"/streams/{stream}/acceptance", ACCEPT | change)
    assert answer[0] == status
    assert text in answer[1]
    assert aggregator.fakes.decisions == {}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "/drain", None), ("PUT", "/drain", WHO), ("PUT", f"/streams/{STOPPED}/acceptance", ACCEPT)],
)
async def test_while_it_starts_it_is_to_be_asked_again(method: str, path: str, body: Any) -> None:
    aggregator = StandIn()
    aggregator.starting = True
    assert (await ask(aggregator, method, path, body))[0] == 503
