"""`python -m e2e.simulator`: watches the pods of a cluster and answers in their place.

`http://127.0.0.1:PORT/NAMESPACE/REPLICA/status` is what `http://REPLICA.NAMESPACE.svc:8080/status` would be. A pod that
is not alive hangs up, as an address without a listener does.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import ValidationError

from blockhouse.config.mirror import MirrorConfig
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.config.verifier import VerifierConfig
from blockhouse.contract import mirror as mirrors
from blockhouse.contract import rollouts as contract
from blockhouse.contract.base import Endpoint, faults
from blockhouse.contract.decisive import digest
from blockhouse.errors import Blocked, Permanent
from blockhouse.serving import respond, respond_unless_known
from e2e.simulator import answers
from e2e.simulator.answers import Play
from e2e.simulator.clickhouse import Refused
from e2e.simulator.elsewhere import forwarded
from e2e.simulator.world import Key, Program, World

REBALANCE = (mirrors.REBALANCE.method, mirrors.REBALANCE.path)
OPEN = frozenset({"healthz", "readyz"})
RESTART_SECONDS = 1.0
"""How long an aggregator that restarts is unavailable."""
TOPICS_EVERY = 1.0
"""Seconds between two requests to the brokers."""

Follow = Callable[["SimulatorServer", asyncio.AbstractEventLoop], None]
"""Brings changes of a cluster to the event loop that the world belongs to."""


class SimulatorServer:
    """The HTTP side; the world is only touched on the event loop."""

    def __init__(self, port: int) -> None:
        self.world = World()
        self._port = port

    async def run(self, *follows: Follow) -> None:
        """Serves until it is cancelled, while each of `follows` brings changes from a thread of its own.

        Raises what one of them raises: a simulator whose pods stand still must not answer for them.
        """
        app = web.Application()
        app.router.add_get("/healthz", self._own_health)
        app.router.add_route("*", "/{namespace}/{name}/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port, reuse_address=True).start()
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for brings in follows:
            threading.Thread(target=self._carry, args=(brings, failed), daemon=True).start()
        learning = asyncio.create_task(self._learn())
        try:
            await asyncio.wait({failed, learning}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            learning.cancel()
        (failed if failed.done() else learning).result()

    def _carry(self, brings: Follow, failed: asyncio.Future[None]) -> None:
        loop = failed.get_loop()

        def fail(error: Exception) -> None:
            if not failed.done():
                failed.set_exception(error)

        try:
            brings(self, loop)
        except Exception as error:  # noqa: BLE001  raised where the process can end with it
            loop.call_soon_threadsafe(fail, error)

    async def _learn(self) -> None:
        while True:
            partitions = await asyncio.to_thread(read_partitions, self.world.topics())
            self.world.learn(partitions, time.monotonic())
            await asyncio.sleep(TOPICS_EVERY)

    async def _own_health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        key = (request.match_info["namespace"], request.match_info["name"])
        program = self.world.programs.get(key)
        if program is None or program.play is Play.SILENT or key in self.world.down:
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPServiceUnavailable
        path = request.match_info["path"]
        if program.elsewhere:
            return await forwarded(request, f"{program.elsewhere}/{path}")
        if path == "clickhouse/":
            return await self._clickhouse(request, program)
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if path not in OPEN and program.token is not None and not hmac.compare_digest(given, program.token):
            raise web.HTTPUnauthorized(text="give the token of admin.token as 'Authorization: Bearer ...'\n")
        if isinstance(program.config, AggregatorConfig):
            found = _endpoint(request.method, f"/{path}")
            if found is not None:
                return await self._change(*found, key, await request.read())
        if isinstance(program.config, MirrorConfig) and (request.method, f"/{path}") == REBALANCE:
            self.world.rebalances[program.uid] = self.world.rebalances.get(program.uid, 0) + 1
            return respond(mirrors.Requested(requested=True))
        if request.method != "GET":
            raise web.HTTPMethodNotAllowed(request.method, ["GET"])
        return self._page(request, key, program)

    def _restart(self, key: Key, number: int) -> web.Response:
        """The container ends, and its kubelet starts it again."""
        ends = self.world.end(key, number, time.monotonic())
        if ends:
            asyncio.get_running_loop().call_later(RESTART_SECONDS, lambda: self.world.begin(key, time.monotonic()))
        return respond(contract.RestartAnswer(ends=ends))

    async def _clickhouse(self, request: web.Request, program: Program) -> web.Response:
        """The HTTP interface of the server beside an aggregator."""
        if program.server is None:
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPServiceUnavailable
        user, password = (request.headers.get(f"X-ClickHouse-{name}", "") for name in ("User", "Key"))
        try:
            text = await asyncio.to_thread(program.server.answer, user, password, await request.text())
        except Refused as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        return web.Response(text=text)

    async def _change(self, endpoint: Endpoint, parameters: Mapping[str, str], key: Key, body: bytes) -> web.Response:
        """What a rollout asks; bad requests are refused as the real one does."""
        tables, now_ms = self.world.tables_of(key), time.time_ns() // 1_000_000
        table = parameters.get("table", "")
        try:
            match endpoint.request and endpoint.request.model_validate_json(body):
                case contract.RestartRequest() as restart:
                    return self._restart(key, restart.number)
                case contract.ApplyRequest() as apply:
                    server = self.world.programs[key].server
                    if server is not None and not tables.gap(key[1], table, apply.ddl).exists:
                        await asyncio.to_thread(server.create, table, apply.ddl)
                    return respond(tables.apply(key[1], table, apply.ddl, apply.rollout, restart=apply.restart))
                case contract.DifferenceRequest() as difference:
                    return respond(tables.gap(key[1], table, difference.ddl))
                case contract.HoldRequest() as hold if endpoint is contract.HOLD:
                    return respond(tables.hold(table, hold.rollout, now_ms))
                case contract.HoldRequest() as hold:
                    return respond(tables.release(table, hold.rollout))
                case _:  # open: a request of a later contract
                    raise web.HTTPNotFound
        except ValidationError as error:
            raise web.HTTPBadRequest(text="\n".join(faults(error)) + "\n") from None
        except Blocked as error:
            raise web.HTTPConflict(text=f"{error}\n") from None
        except Permanent as error:
            raise web.HTTPUnprocessableEntity(text=f"{error}\n") from None

    def _page(self, request: web.Request, key: Key, program: Program) -> web.Response:
        match request.match_info["path"], program.config:
            case "healthz", _:
                return web.Response(text="ok\n")
            case "readyz", _:
                return web.Response(text="ready\n")
            case "metrics", _:
                return web.Response(text="")
            case "status", AggregatorConfig() as settings:
                owned, now = self.world.owned(key), time.monotonic()
                page = answers.status(
                    settings,
                    owned,
                    ready=True,
                    now=now,
                    play=program.play,
                    suspended=self.world.is_suspended(key),
                    restart=self.world.restarts(key),
                    tables=self.world.tables_of(key).status(key[1]),
                )
                return respond_unless_known(request, page, digest(page))
            case "status", MirrorConfig() as settings:
                asked = self.world.rebalances.get(program.uid, 0)
                return respond(answers.mirror_status(settings, asked, program.play))
            case "verdict", VerifierConfig() as settings:
                streams = self.world.streams_of(settings.pipeline)
                return respond(answers.verdict(settings.pipeline, streams, program.play))
            case "anomalies", VerifierConfig() as settings:
                return respond(answers.anomalies(settings.pipeline, program.play))
            case _:  # open: nothing else is asked for
                raise web.HTTPNotFound


def _endpoint(method: str, path: str) -> tuple[Endpoint, Mapping[str, str]] | None:
    """The endpoint that changes something at `path`, and the parameters in it; None when there is none."""
    for endpoint in contract.ENDPOINTS:
        pattern = re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", endpoint.path)
        if endpoint.request is not None and endpoint.method == method and (found := re.fullmatch(pattern, path)):
            return endpoint, found.groupdict()
    return None


def read_partitions(topics: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Partitions of the topics, of those brokers that answer."""
    found: dict[tuple[str, str], int] = {}
    for bootstrap in {bootstrap for bootstrap, _ in topics}:
        try:
            known = _admin(bootstrap).list_topics(timeout=3).topics
        except KafkaException:
            continue
        for servers, topic in topics:
            if servers == bootstrap and topic in known:
                found[servers, topic] = len(known[topic].partitions)
    return found


_admins: dict[str, AdminClient] = {}


def _admin(bootstrap: str) -> Any:
    if bootstrap not in _admins:
        _admins[bootstrap] = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return _admins[bootstrap]
