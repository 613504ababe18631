"""`python -m e2e.simulator`: watches the pods of a cluster and answers in their place.

`http://127.0.0.1:PORT/NAMESPACE/REPLICA/status` is what `http://REPLICA.NAMESPACE.svc:8080/status` would be. A pod that
is not alive hangs up, as an address without a listener does.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import structlog
import typer
from aiohttp import web
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kubernetes import client, config, watch
from pydantic import ValidationError

from blockhouse.config.load import ConfigError
from blockhouse.config.mirror import MirrorConfig
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.config.verifier import VerifierConfig
from blockhouse.contract import mirror as mirrors
from blockhouse.contract import rollouts as contract
from blockhouse.contract.base import Endpoint, faults
from blockhouse.contract.decisive import digest
from blockhouse.errors import Blocked, Permanent
from blockhouse.serving import respond, respond_unless_known
from e2e.simulator import answers, pods
from e2e.simulator.answers import Play
from e2e.simulator.elsewhere import forwarded
from e2e.simulator.world import Key, Program, World

log = structlog.get_logger(__name__)

PROGRAMS = ("aggregator", "verifier", "mirror")
REPLICA_LABEL = "ingest.blockhouse.dev/replica"
PIPELINE_LABEL = "ingest.blockhouse.dev/pipeline"
MIRROR_LABEL = "ingest.blockhouse.dev/mirror"
SHARD_LABEL = "ingest.blockhouse.dev/shard"
SELECTOR = "app.kubernetes.io/part-of=blockhouse"
REBALANCE = (mirrors.REBALANCE.method, mirrors.REBALANCE.path)
OPEN = frozenset({"healthz", "readyz"})
RESTART_SECONDS = 1.0
"""How long an aggregator that restarts is unavailable."""
TOPICS_EVERY = 1.0
"""Seconds between two requests to the brokers."""


class SimulatorServer:
    """The HTTP side; the world is only touched on the event loop."""

    def __init__(self, port: int) -> None:
        self.world = World()
        self._port = port

    async def run(self, follow: Callable[[SimulatorServer, asyncio.AbstractEventLoop], None]) -> None:
        """Serves until it is cancelled, while `follow` brings changes of the pods from a thread of its own."""
        app = web.Application()
        app.router.add_get("/healthz", self._own_health)
        app.router.add_route("*", "/{namespace}/{name}/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port, reuse_address=True).start()
        threading.Thread(target=follow, args=(self, asyncio.get_running_loop()), daemon=True).start()
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
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if path not in OPEN and program.token is not None and not hmac.compare_digest(given, program.token):
            raise web.HTTPUnauthorized(text="give the token of admin.token as 'Authorization: Bearer ...'\n")
        if isinstance(program.config, AggregatorConfig):
            found = _endpoint(request.method, f"/{path}")
            if found is not None:
                return self._change(*found, key, await request.read())
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

    def _change(self, endpoint: Endpoint, parameters: Mapping[str, str], key: Key, body: bytes) -> web.Response:
        """What a rollout asks; bad requests are refused as the real one does."""
        tables, now_ms = self.world.tables_of(key), time.time_ns() // 1_000_000
        table = parameters.get("table", "")
        try:
            match endpoint.request and endpoint.request.model_validate_json(body):
                case contract.RestartRequest() as restart:
                    return self._restart(key, restart.number)
                case contract.ApplyRequest() as apply:
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


class PodWatch:
    """Follows the pods of one cluster. Runs on a thread; the world belongs to the event loop."""

    def __init__(self, kubeconfig: str) -> None:
        config.load_kube_config(kubeconfig)  # type: ignore[no-untyped-call]
        self._core = client.CoreV1Api()
        self._started: dict[str, Program] = {}

    def __call__(self, server: SimulatorServer, loop: asyncio.AbstractEventLoop) -> None:
        threading.Thread(target=self._follow_suspensions, args=(server, loop), daemon=True).start()
        for kind, pod in _events(self._core.list_pod_for_all_namespaces, label_selector=SELECTOR):
            self._apply(kind, pod, server, loop)

    def _follow_suspensions(self, server: SimulatorServer, loop: asyncio.AbstractEventLoop) -> None:
        """The kubelet brings a changed ConfigMap into its pods; nothing here waits for that."""
        for kind, found in _events(self._core.list_config_map_for_all_namespaces, label_selector=SELECTOR):
            metadata, data = found["metadata"], found.get("data") or {}
            if "suspend" in data:
                shard = metadata["labels"]
                key = (metadata["namespace"], f"{shard[PIPELINE_LABEL]}-{shard[SHARD_LABEL]}")
                suspended = kind != "DELETED" and data["suspend"].strip() == "true"
                loop.call_soon_threadsafe(server.world.suspend, key, suspended, time.monotonic())

    def _apply(self, kind: str, pod: pods.Json, server: SimulatorServer, loop: asyncio.AbstractEventLoop) -> None:
        program = next((name for name in PROGRAMS if pods.command_of(pod, name)), None)
        if program is None:
            return
        metadata = pod["metadata"]
        key, uid, world = key_of(pod, program), metadata["uid"], server.world
        if kind == "DELETED" or not pods.is_live(pod, program):
            self._started.pop(uid, None)
            loop.call_soon_threadsafe(lambda: world.drop(key, uid, time.monotonic()))
            return
        started = self._started.get(uid) or self._start(pod, program)
        if started is None:
            return
        annotations = metadata.get("annotations") or {}
        play, elsewhere = Play(annotations.get(pods.ANNOTATION, Play.WELL)), annotations.get(pods.ELSEWHERE, "")
        current = Program(uid, started.config, started.token, play, elsewhere)
        if self._started.get(uid) != current:
            self._started[uid] = current
            loop.call_soon_threadsafe(lambda: world.put(key, current, time.monotonic()))

    def _start(self, pod: pods.Json, program: str) -> Program | None:
        """Reads what the container would read at its start; None, with a line in the log, when it would not start."""

        def lookup(kind: str, name: str) -> pods.Content:
            read = self._core.read_namespaced_config_map if kind == "ConfigMap" else self._core.read_namespaced_secret
            found = read(name, pod["metadata"]["namespace"])
            return pods.texts(kind, {"data": found.data})

        name = pod["metadata"]["name"]
        try:
            settings = pods.configuration(pod, program, lookup)
            token = pods.token(pod, program, settings, lookup)
        except (pods.Unusable, ConfigError, KeyError, client.ApiException) as error:
            log.error("simulator.pod_would_not_start", pod=name, error=str(error))
            return None
        log.info("simulator.started", pod=name, program=program)
        return Program(pod["metadata"]["uid"], settings, token)


def _events(list_function: Any, **arguments: Any) -> Iterator[tuple[str, pods.Json]]:
    """Changes, without an end; a broken watch, or one for a resource that does not exist yet, is started again."""
    while True:
        try:
            stream = watch.Watch().stream(  # type: ignore[no-untyped-call]
                list_function, timeout_seconds=300, **arguments
            )
            for event in stream:
                yield event["type"], event["raw_object"]
        except Exception as error:  # noqa: BLE001  the API server may be restarted, or killed, at any time
            log.warning("simulator.watch_broken", error=str(error).splitlines()[0])
            time.sleep(1)


def key_of(pod: pods.Json, program: str) -> Key:
    """By what name the Service of a pod is known."""
    labels = pod["metadata"]["labels"]
    match program:
        case "aggregator":
            name = labels[REPLICA_LABEL]
        case "mirror":
            name = f"{labels[MIRROR_LABEL]}-mirror"
        case _:  # open: the verifier
            name = f"{labels[PIPELINE_LABEL]}-verifier"
    return pod["metadata"]["namespace"], name


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


def main(
    kubeconfig: Annotated[str, typer.Option(help="Whose pods to play.")],
    port: Annotated[int, typer.Option(help="Where to listen on loopback.")],
) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(SimulatorServer(port).run(PodWatch(kubeconfig)))
