"""What Kubernetes asks the operator: /healthz, /readyz, /metrics. It changes nothing and shows nothing secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from blockhouse.fleet.throttle_figures import throttle_figures
from blockhouse.serving import Answer, HttpServer
from blockhouse_operator.handlers.loop import OperatorLoop

Current = Callable[[], OperatorLoop | None]
"""The loop while this process leads, else None."""


class Figures:
    """Figures of the operator, read when they are asked for."""

    def __init__(self, current: Current) -> None:
        self._current = current

    def collect(self) -> Iterator[Metric]:
        loop = self._current()
        yield GaugeMetricFamily("blockhouse_operator_leader", "1 while this operator leads.", value=float(bool(loop)))
        if loop is None:
            return
        sick = float(bool(loop.sick()))
        yield GaugeMetricFamily(
            "blockhouse_operator_sick", "1 while it does not see changes: a watch is dead.", value=sick
        )
        queue = loop.queue
        yield GaugeMetricFamily("blockhouse_operator_queue_length", "Keys that wait or are at work.", value=len(queue))
        yield CounterMetricFamily("blockhouse_operator_reconciles", "Reconciles of resources.", value=queue.reconciles)
        yield CounterMetricFamily(
            "blockhouse_operator_reconcile_failures",
            "Reconciles that failed and are tried again.",
            value=queue.failures,
        )
        yield from throttle_figures(loop.reassignments.figures(), ("namespace", "reassignment"))


class HealthServer(HttpServer):
    """Serves on every address: probes come from the node. Everything it answers is harmless."""

    def __init__(self, port: int, current: Current) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Figures(current))
        super().__init__("0.0.0.0", port, registry)
        self._current = current

    def health(self) -> Answer:
        loop = self._current()
        sick = loop.sick() if loop is not None else ""
        return Answer(not sick, sick or "ok")

    def readiness(self) -> Answer:
        """A candidate that waits for the lease is ready: it is ready to take over."""
        return Answer(True, "leading" if self._current() else "standing by")
