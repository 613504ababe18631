"""One operator process: connect, wait for the lease, lead, end. What a former leader knew is never used again."""

from __future__ import annotations

import asyncio
import gc
import secrets
import shutil
import signal
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import structlog
from kubernetes.aio.client import ApiClient

from blockhouse_operator.adapters.clickhouse_http import ClickHouseHttp
from blockhouse_operator.adapters.connection import connect
from blockhouse_operator.adapters.endpoints import Endpoints
from blockhouse_operator.adapters.fence import Fence, LeadershipLost, OpenFence, boot_clock
from blockhouse_operator.adapters.figures import Figures
from blockhouse_operator.adapters.kubernetes import Kubernetes
from blockhouse_operator.adapters.lease import RENEW_SECONDS, FencedLock, lead
from blockhouse_operator.adapters.namespaces import Namespaces
from blockhouse_operator.adapters.pipeline_http import PipelineHttp
from blockhouse_operator.handlers.loop import OperatorLoop
from blockhouse_operator.health import HealthServer
from blockhouse_operator.reconcile.services import Ensembles, Services, Troubles

log = structlog.get_logger(__name__)

COLLECTOR = (20_000, 20, 50)
"""Thresholds of the garbage collector: little of what an operator makes is in cycles, and to look for these as often as
by default takes more than a quarter of its time while it starts."""
STOPPED, LOST = 0, 75
"""Exit codes: ended in order; no longer the leader, so a fresh process is needed."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The command line's options. With `lease` None it leads without a lock: for a single process."""

    namespaces: tuple[str, ...]
    """Empty for all."""
    zones: frozenset[str] | None
    endpoints: Endpoints
    identity: str
    lease: tuple[str, str] | None
    """Namespace and name."""
    kubeconfig: str | None = None
    context: str | None = None
    dry_run: bool = False
    concurrency: int = 8
    resync: float = 60.0
    http_port: int = 8080


class Operator:
    """Use once: `run` until a signal, or until leadership is lost; returns the exit code."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._loop: OperatorLoop | None = None
        self._figures = Figures()
        self._chance = Random()
        self._ended_in_order = False

    async def run(self) -> int:
        settings = self._settings
        gc.freeze()  # what was imported stays
        gc.set_threshold(*COLLECTOR)
        async with AsyncExitStack() as stack:
            api = await connect(settings.kubeconfig, settings.context, identity=settings.identity)
            stack.push_async_callback(api.close)
            health = HealthServer(settings.http_port, self._figures, lambda: self._loop)
            await health.start()
            stack.push_async_callback(health.stop)
            log.info("started", identity=settings.identity, http_port=health.port, zones=_shown(settings.zones))
            return await self._until_signal(api)

    async def _until_signal(self, api: ApiClient) -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        work = asyncio.create_task(self._work(api))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, stopping):
            task.cancel()
        results = await asyncio.gather(work, return_exceptions=True)
        for result in results:
            if isinstance(result, LeadershipLost):
                log.error("leadership_lost", action="ending, so that a fresh process takes part in the election")
                return LOST
            if isinstance(result, Exception):
                raise result
        # kopf, where it runs, takes the signals over, and ends by itself then.
        return STOPPED

    async def _work(self, api: ApiClient) -> None:
        if self._settings.lease is None:
            await self._lead(api, OpenFence())
            return
        namespace, name = self._settings.lease
        fence = Fence(RENEW_SECONDS)
        lock = FencedLock(name, namespace, self._settings.identity, api, fence)
        await lead(lock, fence, lambda: self._lead(api, fence))
        if not self._ended_in_order:
            raise LeadershipLost("the lease went to another operator")

    async def _lead(self, api: ApiClient, fence: Fence) -> None:
        settings = self._settings
        folder = Path(tempfile.mkdtemp(prefix="blockhouse-operator-"))
        http, clickhouse, ensembles = PipelineHttp(fence), ClickHouseHttp(fence), Ensembles(fence)
        services = Services(
            kubernetes=Kubernetes(api, fence, self._figures, dry_run=settings.dry_run),
            http=http,
            clickhouse=clickhouse,
            endpoints=settings.endpoints,
            ensembles=ensembles,
            fence=fence,
            troubles=Troubles(boot_clock),
            folder=folder,
            clock=boot_clock,
            wall=lambda: datetime.now(UTC),
            secret=lambda: secrets.token_urlsafe(32),
            zones=settings.zones,
            namespaces=Namespaces(settings.namespaces),
            resync=settings.resync,
            dry_run=settings.dry_run,
            release="/".join(settings.lease) if settings.lease is not None else None,
        )
        self._loop = OperatorLoop(services, api, self._figures, concurrency=settings.concurrency, chance=self._chance)
        try:
            await self._loop.run()
            self._ended_in_order = True
        finally:
            await http.close()
            await clickhouse.close()
            await asyncio.to_thread(ensembles.close)
            shutil.rmtree(folder, ignore_errors=True)


def _shown(zones: frozenset[str] | None) -> str:
    return "all" if zones is None else ", ".join(sorted(zones))
