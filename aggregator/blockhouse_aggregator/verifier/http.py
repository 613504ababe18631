"""What people, Prometheus and the operator ask a running verifier.

It listens on loopback unless a token is set, and changes nothing. Paths and keys are those of `blockhouse.contract`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry

from blockhouse.config.pipeline import Admin
from blockhouse.contract.verifier import ANOMALIES, VERDICT, AnomalyReport, Verdict
from blockhouse.serving import Answer, HttpServer, respond, route


class Answerable(Protocol):
    """What the server asks of the verifier. `alive` is False once only a restart helps, `ready` once all history that
    was there at the start has been read in every cluster that answers."""

    @property
    def alive(self) -> bool: ...
    @property
    def ready(self) -> bool: ...
    @property
    def registry(self) -> CollectorRegistry: ...
    def verdict(self) -> Verdict: ...
    def anomalies(self) -> list[AnomalyReport]: ...


class VerifierServer(HttpServer):
    """/healthz, /readyz, /metrics, /anomalies and /verdict."""

    def __init__(self, config: Admin, verifier: Answerable) -> None:
        token = config.token.read if config.token else None
        super().__init__(config.host, config.port, verifier.registry, token=token, tls=config.tls)
        self._verifier = verifier

    def health(self) -> Answer:
        alive = self._verifier.alive
        return Answer(alive, "ok" if alive else "dead")

    def readiness(self) -> Answer:
        ready = self._verifier.ready
        return Answer(ready, "ready" if ready else "reading history")

    def routes(self) -> Iterable[web.RouteDef]:
        return route(ANOMALIES, self._anomalies), route(VERDICT, self._verdict)

    async def _anomalies(self, _: web.Request) -> web.Response:
        return respond(self._verifier.anomalies())

    async def _verdict(self, _: web.Request) -> web.Response:
        return respond(self._verifier.verdict())
