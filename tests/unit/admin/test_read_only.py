"""The token that only reads: every program answers its GET requests, and none that changes anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from blockhouse.contract import openapi
from blockhouse.serving import TOKEN_HEADER
from blockhouse.tokens import read_only
from tests.unit.admin.stand_in import STOPPED, StandIn, served

TOKEN = "secret"
READS = {"Authorization": f"Bearer {read_only(TOKEN)}"}
DRAIN = {"by": "ann", "why": "the token was to read alone"}


def requests(*, reading: bool) -> list[tuple[str, str]]:
    """Method and path of what an aggregator answers behind a token."""
    values = {"table": "db.events", "cluster": STOPPED.cluster, "topic": STOPPED.topic, "point": "commit"}
    found = []
    for path, item in openapi.document("1")["paths"].items():
        for method, operation in item.items():
            if operation.get("security") != [] and "aggregator" in operation["tags"] and (method == "get") is reading:
                found.append((method.upper(), path.format(partition=STOPPED.partition, **values)))
    return found


@pytest.fixture
async def aggregator(tmp_path: Path) -> AsyncIterator[tuple[StandIn, aiohttp.ClientSession]]:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    found = StandIn()
    async with served(found, file) as url, aiohttp.ClientSession(base_url=url) as client:
        yield found, client


async def test_everything_that_is_read_is_answered(aggregator: tuple[StandIn, aiohttp.ClientSession]) -> None:
    _, client = aggregator
    asked = requests(reading=True)
    assert {("GET", "/metrics"), ("GET", "/status"), ("GET", "/history")} <= set(asked)
    for method, path in asked:
        for headers in (READS, {TOKEN_HEADER: read_only(TOKEN)}):
            async with client.request(method, path, headers=headers) as answer:
                assert answer.status == (404 if path == "/faults" else 200), path  # faults are off
    async with client.head("/status", headers=READS) as answer:
        assert answer.status == 200


async def test_nothing_that_changes_anything_is(aggregator: tuple[StandIn, aiohttp.ClientSession]) -> None:
    _, client = aggregator
    asked = requests(reading=False)
    assert {("PUT", "/drain"), ("POST", "/restart"), ("PUT", "/log-level")} <= set(asked)
    for method, path in [*asked, ("POST", "/status"), ("PUT", "/unknown"), ("PATCH", "/drain")]:
        async with client.request(method, path, headers=READS, json=DRAIN) as answer:
            text = await answer.text()
        assert answer.status == 403, (method, path)
        assert text == f"a read-only token allows GET alone: for {method} give the token of admin.token\n"


async def test_a_drain_that_is_refused_is_none(aggregator: tuple[StandIn, aiohttp.ClientSession]) -> None:
    found, client = aggregator
    for token, status, drained in ((read_only(TOKEN), 403, False), ("guess", 401, False), (TOKEN, 200, True)):
        async with client.put("/drain", headers={"Authorization": f"Bearer {token}"}, json=DRAIN) as answer:
            assert answer.status == status
        assert (found.fakes.drain is not None) is drained


def test_no_program_changes_anything_by_a_get() -> None:
    """Who has a read-only token may ask all of these. The mirror has /status, and changes by POST alone."""
    read = {path: item["get"] for path, item in openapi.document("1")["paths"].items() if "get" in item}
    assert not [path for path, operation in read.items() if "requestBody" in operation]
    assert set(read) == {
        *("/", "/healthz", "/readyz", "/metrics", "/status", "/history", "/threads", "/log-level", "/drain"),
        *("/faults", "/verdict", "/anomalies", "/throttle", "/throttle/{broker}"),
    }, "one more: does it only read?"
