"""The HTTP side that every running program has: probes, metrics, and a token before everything that shows anything;
the one that only reads changes nothing. Without a token it answers no page of another site.

It reveals nothing secret by itself, and changes nothing; what else a program answers is in its own routes.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TypeVar

from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import gzip_accepted
from pydantic import ValidationError

from blockhouse.certificates import ServerCertificate
from blockhouse.config.pipeline import LOOPBACK, AdminTls
from blockhouse.contract import base as contract
from blockhouse.contract.base import Endpoint
from blockhouse.cross_site import refusal
from blockhouse.errors import Permanent
from blockhouse.exposition import Exposition
from blockhouse.page import PATH as PAGE
from blockhouse.tokens import Access, Tokens

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RequestT = TypeVar("RequestT", bound=contract.Request)
OPEN = frozenset({"/healthz", "/readyz", PAGE})
"""What is answered without a token: the probes, and the page for people, which asks for it."""
TOKEN_HEADER = "X-Blockhouse-Token"
"""The token where `Authorization` is another's: an API server that passes a request on keeps that header to itself."""
READING = frozenset({"GET", "HEAD"})
"""Methods that a read-only token allows. Nothing that is asked for by one of these may change anything."""


@dataclass(frozen=True, slots=True)
class Answer:
    """To a probe: 200 or 503, and a word or a reason for the person who looks."""

    good: bool
    text: str

    def response(self) -> web.Response:
        """As HTTP: 200 when good, else 503."""
        return web.Response(text=f"{self.text}\n", status=200 if self.good else 503)


def route(endpoint: Endpoint, handler: Handler) -> web.RouteDef:
    """The route of an endpoint of the contract."""
    return web.route(endpoint.method, endpoint.path, handler)


def respond(answer: contract.Answer | Sequence[contract.Answer]) -> web.Response:
    """What an endpoint of the contract answers, with code 200."""
    if isinstance(answer, contract.Answer):
        return web.json_response(answer.written())
    return web.json_response([each.written() for each in answer])


def respond_unless_known(request: web.Request, answer: contract.Answer, digest: str) -> web.Response:
    """The answer with its digest as ETag, or 304 without a body for a client that has an answer with this digest."""
    tag = {"ETag": f'"{digest}"'}
    if request.headers.get("If-None-Match") == tag["ETag"]:
        return web.Response(status=304, headers=tag)
    return web.json_response(answer.written(), headers=tag)


async def body(request: web.Request, kind: type[RequestT]) -> RequestT:
    """The body of a request of the contract. Raises HTTPBadRequest naming what is wrong with it."""
    try:
        return kind.model_validate_json(await request.read())
    except ValidationError as error:
        raise web.HTTPBadRequest(text="\n".join(contract.faults(error)) + "\n") from None


def process_figures(registry: CollectorRegistry) -> None:
    """What every program reports of itself: its process and its version. No time of creation beside each counter."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    ProcessCollector(registry=registry)
    Info("blockhouse_build", "The version that runs", registry=registry).info({"version": version("blockhouse")})


def cannot_listen(what: str, host: str, port: int, error: OSError) -> Permanent:
    """Permanent `CannotListen`; `what` is served there."""
    why = os.strerror(error.errno) if error.errno else str(error)
    text = f"cannot listen on {host}:{port}: {why.lower()}; give the {what} port another number"
    return Permanent(text, reason="CannotListen")


class HttpServer(ABC):
    """Serves on the event loop it is started on. `port` 0 takes a free one, which `port` is once started."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        *,
        token: Callable[[], str] | None = None,
        tls: AdminTls | None = None,
    ) -> None:
        self.port = port
        self._host = host
        process_figures(registry)
        self._exposition = Exposition(registry)
        self._tokens = Tokens(token) if token is not None else None
        self._certificate = ServerCertificate(tls.cert_file, tls.key_file) if tls is not None else None
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
        """Listen; `port` is the real one afterwards. Raises Permanent `CannotListen` when that is impossible."""
        app = web.Application(middlewares=[self._authorized])
        probes = (web.get("/healthz", self._healthz), web.get("/readyz", self._readyz))
        app.add_routes([*probes, web.get("/metrics", self._metrics), *self.routes()])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            context = self._certificate.context() if self._certificate is not None else None
            await web.TCPSite(self._runner, self._host, self.port, ssl_context=context).start()
        except OSError as error:
            await self._runner.cleanup()
            raise cannot_listen("HTTP", self._host, self.port, error) from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port and all connections; nothing when it was not started."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._exposition.close()

    @web.middleware
    async def _authorized(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        # What is served elsewhere without a token is harmless, and has names that are not known here.
        asked = self._tokens is None and self._host in LOOPBACK and request.path != PAGE
        if asked and (why := refusal(request.headers)):
            raise web.HTTPForbidden(text=f"{why}\n")
        if self._tokens is not None and request.path not in OPEN:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ")
            given = given or request.headers.get(TOKEN_HEADER, "")
            access = self._tokens.access(given)
            if access is Access.NONE:
                raise web.HTTPUnauthorized(text="give the token of admin.token as 'Authorization: Bearer ...'\n")
            if access is Access.READ and request.method not in READING:
                text = f"a read-only token allows GET alone: for {request.method} give the token of admin.token\n"
                raise web.HTTPForbidden(text=text)
        return await handler(request)

    async def _healthz(self, _: web.Request) -> web.Response:
        return self.health().response()

    async def _readyz(self, _: web.Request) -> web.Response:
        return self.readiness().response()

    async def _metrics(self, request: web.Request) -> web.Response:
        page, headers = await self._exposition.page(), {"Content-Type": CONTENT_TYPE_LATEST}
        if not gzip_accepted(request.headers.get("Accept-Encoding", "")):
            return web.Response(body=page.plain, headers=headers)
        return web.Response(body=page.gzipped, headers={**headers, "Content-Encoding": "gzip"})
