"""What Kubernetes asks the operator: /healthz, /readyz, /metrics. It changes nothing and tells nothing secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from blockhouse.serving import Answer, HttpServer
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


class HealthServer(HttpServer):
    """Serves on every address: probes come from the node. Everything it says is harmless."""

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
