"""What people and Kubernetes ask a running aggregator: /healthz, /readyz, /metrics, /status; and /faults in tests.

It listens on loopback unless a token is set. Only /tables, for rollouts, changes anything, and
/faults when fault injection is on.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from blockhouse.config.pipeline import Admin
from blockhouse_aggregator.admin.faults import FaultRoutes
from blockhouse_aggregator.admin.tables import TableRoutes
from blockhouse_aggregator.runtime.rollouts import Rollouts
from blockhouse_aggregator.runtime.status import Answerable, status

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OPEN = frozenset({"/healthz", "/readyz"})


class Administered(Answerable, Protocol):
    """An aggregator, as the admin API sees it."""

    def rollouts(self) -> Rollouts: ...


class AdminServer:
    """Serves the admin API on the event loop."""

    def __init__(self, config: Admin, aggregator: Administered) -> None:
        self._config = config
        self._aggregator = aggregator
        self._token = config.token.read() if config.token else None
        self._runner: web.AppRunner | None = None
        self.port = config.port

    async def start(self) -> None:
        app = web.Application(middlewares=[self._authorized])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/status", self._status)
        TableRoutes(self._aggregator.rollouts).add_to(app)
        FaultRoutes(self._aggregator.faults).add_to(app)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._config.host, self._config.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _authorized(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._token is not None and request.path not in OPEN:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                raise web.HTTPUnauthorized(text="give the token of admin.token as 'Authorization: Bearer ...'\n")
        return await handler(request)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._aggregator.ready:
            return web.Response(text="ready\n")
        return web.Response(text="starting\n", status=503)

    async def _metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._aggregator.figures.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(status(self._aggregator))
