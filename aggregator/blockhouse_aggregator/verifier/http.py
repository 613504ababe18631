"""What people, Prometheus and the operator ask a running verifier.

It listens on loopback unless a token is set, and changes nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from blockhouse.config.pipeline import Admin

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OPEN = frozenset({"/healthz", "/readyz"})


class Answerable(Protocol):
    """What the server asks of the verifier. `alive` is False once only a restart helps, `ready` once all history that
    was there at the start has been read in every cluster that answers."""

    @property
    def alive(self) -> bool: ...
    @property
    def ready(self) -> bool: ...
    @property
    def registry(self) -> CollectorRegistry: ...
    def verdict(self) -> dict[str, Any]: ...
    def anomalies(self) -> list[dict[str, Any]]: ...


class VerifierServer:
    """Serves on the event loop it is started on."""

    def __init__(self, config: Admin, verifier: Answerable) -> None:
        self._config = config
        self._verifier = verifier
        self._token = config.token.read() if config.token else None
        self._runner: web.AppRunner | None = None
        self.port = config.port

    async def start(self) -> None:
        app = web.Application(middlewares=[self._authorized])
        for path, handler in (
            ("/healthz", self._healthz),
            ("/readyz", self._readyz),
            ("/metrics", self._metrics),
            ("/anomalies", self._anomalies),
            ("/verdict", self._verdict),
        ):
            app.router.add_get(path, handler)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._config.host, self._config.port).start()
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
        alive = self._verifier.alive
        return web.Response(text="ok\n" if alive else "dead\n", status=200 if alive else 503)

    async def _readyz(self, _: web.Request) -> web.Response:
        ready = self._verifier.ready
        return web.Response(text="ready\n" if ready else "reading history\n", status=200 if ready else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._verifier.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _anomalies(self, _: web.Request) -> web.Response:
        return web.json_response(self._verifier.anomalies())

    async def _verdict(self, _: web.Request) -> web.Response:
        return web.json_response(self._verifier.verdict())
