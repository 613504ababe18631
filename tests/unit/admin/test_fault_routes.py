"""`/faults` over HTTP: armed, listed, disarmed; refused with a reason; absent while it is off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from blockhouse.contract.faults import FaultsAnswer
from blockhouse_aggregator.admin.faults import FaultRoutes
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.faults.model import Point

Client = TestClient[web.Request, web.Application]


@asynccontextmanager
async def serving(faults: Faults) -> AsyncIterator[Client]:
    app = web.Application()
    app.add_routes(FaultRoutes(faults).all())
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_a_fault_is_armed_listed_and_disarmed() -> None:
    faults = Faults(enabled=True)
    async with serving(faults) as client:
        put = await client.put("/faults/before-insert", json={"action": "delay", "seconds": 2, "count": 3})
        listed = FaultsAnswer.parse(await (await client.get("/faults")).text())
        deleted = await client.delete("/faults/before-insert")

    assert (put.status, deleted.status) == (200, 200)
    assert [(f.point, f.action, f.count, f.strikes) for f in listed.armed] == [("before-insert", "delay", 3, 0)]
    assert faults.armed() == ()


async def test_deleting_all_disarms_every_point() -> None:
    faults = Faults(enabled=True)
    async with serving(faults) as client:
        for point in ("before-insert", "after-commit"):
            assert (await client.put(f"/faults/{point}", json={"action": "fail"})).status == 200
        await client.delete("/faults")

    assert faults.armed() == ()


async def test_what_has_struck_is_counted() -> None:
    faults = Faults(enabled=True)
    async with serving(faults) as client:
        await client.put("/faults/after-commit", json={"action": "fail"})
        faults.take(Point.AFTER_COMMIT, "a/t/0")
        found = await (await client.get("/faults")).json()

    assert found == {"armed": [], "struck": {"after-commit": 1}}


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/faults/after-commit", b'{"action": "kill-worker"}', 400, "not possible"),
        ("/faults/after-commit", b'{"action": "explode"}', 400, "action"),
        ("/faults/after-commit", b"[1]", 400, "object"),
        ("/faults/after-commit", b"kaboom", 400, "JSON"),
        ("/faults/after-commit", b"\x91", 400, "JSON"),
        ("/faults/after-commit", b'{"action": "fail", "often": 2}', 400, "often"),
        ("/faults/after-lunch", b'{"action": "fail"}', 404, "after-commit"),
    ],
)
async def test_a_request_that_means_nothing_is_refused_with_a_reason(
    path: str, body: bytes, status: int, text: str
) -> None:
    faults = Faults(enabled=True)
    async with serving(faults) as client:
        answer = await client.put(path, data=body)
        text_of_answer = await answer.text()

    assert (answer.status, faults.armed()) == (status, ())
    assert text in text_of_answer


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_nothing_answers_while_it_is_off(method: str) -> None:
    async with serving(Faults()) as client:
        path = "/faults/after-commit" if method == "PUT" else "/faults"
        answer = await client.request(method, path, json={"action": "fail"})
        text_of_answer = await answer.text()

    assert answer.status == 404
    assert "faults.enabled" in text_of_answer
