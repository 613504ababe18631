"""What Kubernetes asks the operator: /healthz, /readyz, /metrics. It changes nothing and tells nothing secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from blockhouse_operator.handlers.loop import OperatorLoop

Current = Callable[[], OperatorLoop | None]
"""The loop while this process leads, else None."""


class Figures:
    """Figures of the operator, read when somebody asks for them."""

    def __init__(self, current: Current) -> None:
        self._current = current

    def collect(self) -> Iterator[Metric]:
        loop = self._current()
        yield GaugeMetricFamily("blockhouse_operator_leader", "1 while this operator leads.", value=float(bool(loop)))
        if loop is None:
            return
        queue = loop.queue
        yield GaugeMetricFamily("blockhouse_operator_queue_length", "Keys that wait or are at work.", value=len(queue))
        yield CounterMetricFamily("blockhouse_operator_reconciles", "Turns given to resources.", value=queue.turns)
        yield CounterMetricFamily(
            "blockhouse_operator_reconcile_failures", "Turns that failed and are tried again.", value=queue.failures
        )


class HealthServer:
    """Serves on every address: probes come from the node. Everything it says is harmless."""

    def __init__(self, port: int, current: Current) -> None:
        self._current = current
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(Figures(current))
        self._runner: web.AppRunner | None = None
        self.port = port

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "0.0.0.0", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        loop = self._current()
        sick = loop.sick() if loop is not None else ""
        return web.Response(text=f"{sick}\n", status=503) if sick else web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        """A candidate that waits for the lease is ready: it is ready to take over."""
        return web.Response(text="leading\n" if self._current() else "standing by\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
