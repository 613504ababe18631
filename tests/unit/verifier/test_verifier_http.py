"""The HTTP surface: who may ask what, and what is answered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession
from prometheus_client import CollectorRegistry, Counter

from blockhouse.config.pipeline import Admin
from blockhouse.config.secrets import SecretRef
from blockhouse.contract.verifier import AnomalyReport, Verdict
from blockhouse_aggregator.verifier.http import VerifierServer
from tests.contract_values import anomaly, verdict


class _Verifier:
    def __init__(self) -> None:
        self.alive = self.ready = True
        self.registry = CollectorRegistry()
        Counter("seen", "Seen.", registry=self.registry).inc(3)

    def verdict(self) -> Verdict:
        return verdict()

    def anomalies(self) -> list[AnomalyReport]:
        return [anomaly()]


@asynccontextmanager
async def served(verifier: _Verifier, token: SecretRef | None = None) -> AsyncIterator[tuple[ClientSession, str]]:
    server = VerifierServer(Admin(port=0, token=token), verifier)
    await server.start()
    async with ClientSession() as session:
        yield session, f"http://127.0.0.1:{server.port}"
    await server.stop()


async def ask(session: ClientSession, url: str, **headers: str) -> tuple[int, str]:
    async with session.get(url, headers=headers) as answer:
        return answer.status, await answer.text()


async def test_every_path_answers() -> None:
    async with served(_Verifier()) as (session, url):
        assert await ask(session, url + "/healthz") == (200, "ok\n")
        assert await ask(session, url + "/readyz") == (200, "ready\n")
        assert "seen_total 3.0" in (await ask(session, url + "/metrics"))[1]
        assert Verdict.parse((await ask(session, url + "/verdict"))[1]) == verdict()
        assert json.loads((await ask(session, url + "/anomalies"))[1]) == [anomaly().written()]


async def test_one_that_is_not_ready_or_not_alive_reports_it() -> None:
    verifier = _Verifier()
    verifier.alive = verifier.ready = False
    async with served(verifier) as (session, url):
        assert (await ask(session, url + "/readyz"))[0] == 503
        assert (await ask(session, url + "/healthz"))[0] == 503


async def test_with_a_token_only_the_probes_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "sesame")
    async with served(_Verifier(), SecretRef(env="TOKEN")) as (session, url):
        assert [(await ask(session, url + path))[0] for path in ("/healthz", "/readyz")] == [200, 200]
        for path in ("/metrics", "/verdict", "/anomalies"):
            assert (await ask(session, url + path))[0] == 401
            assert (await ask(session, url + path, Authorization="Bearer wrong"))[0] == 401
            assert (await ask(session, url + path, Authorization="Bearer sesame"))[0] == 200
