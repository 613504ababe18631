"""The HTTP side that every running program has: probes, metrics, and a token before everything but the probes.

It says nothing secret by itself, and changes nothing; what else a program answers is in its own routes.
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PROBES = frozenset({"/healthz", "/readyz"})


@dataclass(frozen=True, slots=True)
class Answer:
    """To a probe: 200 or 503, and a word or a reason for the person who looks."""

    good: bool
    text: str

    def response(self) -> web.Response:
        return web.Response(text=f"{self.text}\n", status=200 if self.good else 503)


class HttpServer(ABC):
    """Serves on the event loop it is started on. `port` 0 takes a free one, which `port` tells once started."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, *, token: str | None = None) -> None:
        self.port = port
        self._host = host
        self._registry = registry
        self._token = token
        self._runner: web.AppRunner | None = None

    @abstractmethod
    def health(self) -> Answer:
        """Bad once only a restart helps."""

    @abstractmethod
    def readiness(self) -> Answer: ...

    def routes(self) -> Iterable[web.RouteDef]:
        """What this program answers beside probes and metrics."""
        return ()

    async def start(self) -> None:
        app = web.Application(middlewares=[self._authorized])
        probes = (web.get("/healthz", self._healthz), web.get("/readyz", self._readyz))
        app.add_routes([*probes, web.get("/metrics", self._metrics), *self.routes()])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _authorized(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._token is not None and request.path not in PROBES:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                raise web.HTTPUnauthorized(text="give the token of admin.token as 'Authorization: Bearer ...'\n")
        return await handler(request)

    async def _healthz(self, _: web.Request) -> web.Response:
        return self.health().response()

    async def _readyz(self, _: web.Request) -> web.Response:
        return self.readiness().response()

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
