"""Fixed rates over HTTP: what is asked for is in the record, counts at once, and errors have their codes."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from blockhouse.config.pipeline import Admin
from blockhouse.config.secrets import SecretRef
from blockhouse.contract.throttle import ThrottleAnswer
from blockhouse.errors import Permanent
from blockhouse.fleet.throttle_http import Pause, Running, ThrottleServer, answering
from blockhouse.fleet.throttle_inputs import http_settings
from blockhouse.fleet.throttle_store import FileStore
from blockhouse.placement.model import InvalidInput
from blockhouse.throttle.model import Override, Overrides, Role
from blockhouse.throttle.report import Row
from tests.unit.fleet.test_throttling import Stage

ROW = Row(
    broker=3, role=Role.FOLLOWER, alive=True, capacity=100e6, other=None, moved=4e6, rate=10_000_000,
    in_force=None, floor=12e6, why="Load", remaining=500.0, eta=float("inf"), stalled=True,
)  # fmt: skip
TOKEN = "not-secret"


@dataclass
class Asked:
    """The server, asked over a real connection."""

    session: aiohttp.ClientSession
    store: FileStore
    changes: list[None]

    async def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with self.session.request(method, path, json=body) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await answer.json() if is_json else await answer.text()


@pytest_asyncio.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Asked]:
    path, token = tmp_path / "record.json", tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    changes: list[None] = []
    running = Running(FileStore(path, "c"), lambda: changes.append(None), lambda: (ROW,), wall=lambda: 1_800_000_000.0)
    server = ThrottleServer(Admin(port=0, token=SecretRef(file=token)), running)
    await server.start()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}", headers=headers) as session:
        yield Asked(session, FileStore(path, "c"), changes)
    await server.stop()


async def test_a_rate_is_fixed_shown_and_forgotten(ask: Asked) -> None:
    fixed = await ask("PUT", "/throttle", {"rate": "50MB/s", "autoRemove": True})
    assert fixed == (200, {"rate": 50_000_000, "autoRemove": True, "expiresAt": None})
    fixed = await ask("PUT", "/throttle/3", {"rate": "64Mi", "expires": "2h"})
    assert fixed == (200, {"rate": 64 << 20, "autoRemove": False, "expiresAt": "2027-01-15T10:00:00Z"})
    assert ask.store.overrides() == Overrides(
        Override(50_000_000, auto_remove=True), {3: Override(64 << 20, expires_at=1_800_007_200.0)}
    )

    status, shown = await ask("GET", "/throttle")
    answer = ThrottleAnswer.parse(shown)
    assert (status, answer.cluster, list(answer.brokers)) == (200, "c", ["3"])
    assert (answer.rates[0].rate, answer.rates[0].eta, answer.rates[0].stalled) == (10_000_000, None, True)
    assert await ask("GET", "/throttle/3") == (200, shown["brokers"]["3"])

    assert await ask("DELETE", "/throttle/3") == (200, {"forgotten": 1})
    assert await ask("DELETE", "/throttle") == (200, {"forgotten": 1})
    assert ask.store.overrides() == Overrides()
    assert len(ask.changes) == 4, "each change counts at once"


async def test_kafka_kits_requests_are_understood(ask: Asked) -> None:
    assert (await ask("POST", "/throttle?rate=20&autoremove=true"))[0] == 200
    assert (await ask("POST", "/throttle/1001?rate=5"))[0] == 200
    assert (await ask("POST", "/throttle/1002?rate=6"))[0] == 200
    assert ask.store.overrides() == Overrides(
        Override(20_000_000, auto_remove=True), {1001: Override(5_000_000), 1002: Override(6_000_000)}
    )
    assert await ask("POST", "/throttle/remove/1001") == (200, {"forgotten": 1})
    assert await ask("POST", "/throttle/remove/all") == (200, {"forgotten": 1})
    assert ask.store.overrides() == Overrides(Override(20_000_000, auto_remove=True)), "all: of single brokers"
    assert await ask("POST", "/throttle/remove") == (200, {"forgotten": 1})


@pytest.mark.parametrize(
    ("method", "path", "given", "status", "words"),
    [
        ("PUT", "/throttle", {"rate": "1250"}, 400, "has no unit"),
        ("PUT", "/throttle", {"rate": "0M"}, 400, "nothing would ever be copied"),
        ("PUT", "/throttle", {"rate": "5M", "expires": "soon"}, 400, "such as 2h"),
        ("PUT", "/throttle", {"rate": "5M", "unknown": 1}, 400, "unknown"),
        ("PUT", "/throttle", {}, 400, "rate"),
        ("PUT", "/throttle", None, 400, "Invalid JSON"),
        ("PUT", "/throttle/three", {"rate": "5M"}, 404, "'three' is no broker"),
        ("GET", "/throttle/3", None, 404, "no rate of broker 3 is fixed"),
        ("DELETE", "/throttle/3", None, 404, "no such rate is fixed"),
        ("DELETE", "/throttle", None, 404, "no such rate is fixed"),
        ("POST", "/throttle", None, 400, "rate param must be specified"),
        ("POST", "/throttle?rate=-5", None, 400, "rate param must be specified"),
        ("POST", "/throttle?rate=5&autoremove=maybe", None, 400, "autoremove param must be a bool"),
        ("POST", "/throttle/x?rate=5", None, 404, "'x' is no broker"),
        ("POST", "/throttle/remove/all", None, 404, "no such rate is fixed"),
    ],
)
async def test_what_cannot_be_done_has_its_code_and_words(
    ask: Asked, method: str, path: str, given: Any, status: int, words: str
) -> None:
    code, text = await ask(method, path, given)

    assert (code, words in text) == (status, True), text
    assert ask.store.overrides() == Overrides()
    assert ask.changes == []


async def test_without_the_token_nothing_is_shown_or_changed(ask: Asked) -> None:
    for method, path in (("GET", "/throttle"), ("PUT", "/throttle"), ("POST", "/throttle?rate=5"), ("GET", "/metrics")):
        async with ask.session.request(method, path, headers={"Authorization": "Bearer other"}) as answer:
            assert answer.status == 401
    assert ask.store.overrides() == Overrides()


async def test_a_record_that_cannot_be_used_is_an_answer_and_no_crash(ask: Asked) -> None:
    ask.store.path.write_text("{")

    status, text = await ask("PUT", "/throttle", {"rate": "5M"})

    assert status == 503
    assert str(ask.store.path) in text


async def test_metrics_have_fixed_rates_and_those_in_force(ask: Asked) -> None:
    await ask("PUT", "/throttle/3", {"rate": "5M"})

    _, text = await ask("GET", "/metrics")

    assert 'blockhouse_throttle_override{cluster="c",scope="3"} 5e+06' in text
    assert 'blockhouse_throttle_rate_bytes{broker="3",cluster="c",role="follower"} 1e+07' in text


def test_outside_loopback_a_token_is_required(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="a token is required"):
        http_settings("0.0.0.0:8080", None)
    with pytest.raises(InvalidInput, match=r"--http nowhere"):
        http_settings("nowhere", None)
    assert http_settings("0.0.0.0:8080", tmp_path) == Admin(host="0.0.0.0", token=SecretRef(file=tmp_path))
    assert http_settings(None, None) is None


def test_a_pause_is_cut_short_by_a_change_and_ended_by_a_stop() -> None:
    pause = Pause()
    pause.end()
    assert not pause.wait(60), "a change: the next interval begins at once"
    assert not pause.wait(0.0), "once"
    pause.stop()
    assert pause.wait(60)


def test_it_answers_beside_a_command_and_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    throttler, store = Stage().throttler, FileStore(tmp_path / "record.json", "c")

    def beside(listen: Admin | None) -> AbstractContextManager[None]:
        return answering(listen, store, throttler, lambda: None)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        there = Admin(port=taken.getsockname()[1])
        with pytest.raises(Permanent, match="address already in use"), beside(there):
            raise AssertionError("the command must not run without it")
    address = f"http://127.0.0.1:{there.port}/throttle"
    with beside(there), urllib.request.urlopen(address, timeout=10) as answer:
        assert {rate["broker"] for rate in json.load(answer)["rates"]} == {1, 2, 3}
    with beside(None), pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=10)
