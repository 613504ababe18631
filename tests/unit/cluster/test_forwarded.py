"""What is asked of a pod that another program answers for arrives there whole, and so does the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from e2e.simulator.elsewhere import forwarded

ETAG = '"known"'


async def answer(request: web.Request) -> web.Response:
    if request.headers.get("If-None-Match") == ETAG:
        return web.Response(status=304, headers={"ETag": ETAG})
    body = {
        "asked": [request.method, str(request.rel_url), request.headers.get("Authorization")],
        "body": (await request.read()).decode(),
        "type": request.content_type,
    }
    return web.json_response(body, status=409, headers={"ETag": ETAG})


@pytest.fixture
async def client() -> AsyncIterator[TestClient[web.Request, web.Application]]:
    other, here = web.Application(), web.Application()
    other.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(other) as server:

        async def forward(request: web.Request) -> web.Response:
            return await forwarded(request, str(server.make_url(request.path)))

        here.router.add_route("*", "/{path:.*}", forward)
        async with TestClient(TestServer(here)) as client:
            yield client


async def test_a_change_arrives_with_its_body(client: TestClient[web.Request, web.Application]) -> None:
    found = await client.put("/tables/t?why=x", json={"ddl": "CREATE"}, headers={"Authorization": "Bearer t"})

    assert found.status == 409
    assert await found.json() == {
        "asked": ["PUT", "/tables/t?why=x", "Bearer t"],
        "body": '{"ddl": "CREATE"}',
        "type": "application/json",
    }


async def test_what_the_client_has_is_not_sent_again(client: TestClient[web.Request, web.Application]) -> None:
    first = await client.get("/status")
    second = await client.get("/status", headers={"If-None-Match": first.headers["ETag"]})

    assert (first.status, second.status) == (409, 304)
    assert second.headers["ETag"] == ETAG
