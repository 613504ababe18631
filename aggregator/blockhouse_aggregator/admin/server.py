"""What people and Kubernetes ask a running aggregator: /healthz, /readyz, /metrics, /status; and /faults in tests.

It listens on loopback unless a token is set. Only /tables and /restart, for rollouts, change anything, and
/faults when fault injection is on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from aiohttp import web

from blockhouse.config.pipeline import Admin
from blockhouse.serving import Answer, HttpServer
from blockhouse_aggregator.admin.faults import FaultRoutes
from blockhouse_aggregator.admin.tables import TableRoutes
from blockhouse_aggregator.runtime.rollouts import Rollouts
from blockhouse_aggregator.runtime.status import Answerable, status


class Administered(Answerable, Protocol):
    """An aggregator, as the admin API sees it."""

    def rollouts(self) -> Rollouts: ...


class AdminServer(HttpServer):
    """The admin API of one aggregator."""

    def __init__(self, config: Admin, aggregator: Administered) -> None:
        token = config.token.read() if config.token else None
        super().__init__(config.host, config.port, aggregator.figures.registry, token=token)
        self._aggregator = aggregator

    def health(self) -> Answer:
        """An aggregator that cannot go on ends by itself."""
        return Answer(True, "ok")

    def readiness(self) -> Answer:
        ready = self._aggregator.ready
        return Answer(ready, "ready" if ready else "starting")

    def routes(self) -> Iterable[web.RouteDef]:
        yield web.get("/status", self._status)
        yield from TableRoutes(self._aggregator.rollouts).all()
        yield from FaultRoutes(self._aggregator.faults).all()

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(status(self._aggregator))
