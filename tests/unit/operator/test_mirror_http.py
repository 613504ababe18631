"""The operator's client against the HTTP side of a real driver: one contract, with the token of the pod."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from blockhouse.errors import Retryable
from blockhouse_mirror.runtime.driver import Driver
from blockhouse_mirror.runtime.http import MirrorServer
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.adapters.pipeline_http import AdminLogin, PipelineHttp
from tests.unit.mirror.driving import Clusters, driver_of


@pytest.fixture
async def client() -> AsyncIterator[PipelineHttp]:
    made = PipelineHttp(OpenFence())
    yield made
    await made.close()


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, Driver]]:
    """The base of a driver's API that listens outside loopback too, as in a pod, and the driver."""
    (tmp_path / "token").write_text("t0ken\n")
    admin = f"admin: {{host: 0.0.0.0, port: 0, token: {{file: {tmp_path}/token}}}}\n"
    driver = driver_of(Clusters(), monkeypatch, admin)
    server = MirrorServer(driver)
    await server.start()
    yield f"http://127.0.0.1:{server.port}", driver
    await server.stop()


async def test_the_status_of_a_driver_is_understood(client: PipelineHttp, served: tuple[str, Driver]) -> None:
    base, driver = served
    await driver.discovering.take_over()

    page = await client.mirror(base, AdminLogin("t0ken"))

    assert [(each.topic, each.partition) for each in page.partitions] == [("t", 0), ("t", 1)]
    assert page.errors == {}


async def test_a_request_for_even_tasks_reaches_the_driver(
    client: PipelineHttp, served: tuple[str, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, driver = served
    asked: list[bool] = []
    monkeypatch.setattr(driver, "request_rebalance", lambda: asked.append(True))

    await client.rebalance(base, AdminLogin("t0ken"))

    assert asked == [True]


async def test_nothing_is_answered_without_the_token(client: PipelineHttp, served: tuple[str, Driver]) -> None:
    base, _ = served
    with pytest.raises(Retryable, match="answers 401"):
        await client.mirror(base, AdminLogin("guessed"))
    with pytest.raises(Retryable, match="answers 401"):
        await client.rebalance(base, AdminLogin())


async def test_a_driver_that_is_gone_does_not_answer(client: PipelineHttp) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Retryable, match="does not answer"):
        await client.mirror(f"http://127.0.0.1:{port}", AdminLogin("t0ken"))
