"""What Kubernetes asks the operator: /healthz, /readyz, /metrics. It changes nothing and shows nothing secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from blockhouse.fleet.throttle_figures import throttle_figures
from blockhouse.serving import Answer, HttpServer
from blockhouse_operator.adapters.figures import Figures
from blockhouse_operator.handlers.inventory import Inventory
from blockhouse_operator.handlers.loop import OperatorLoop

Current = Callable[[], OperatorLoop | None]
"""The loop while this process leads, else None."""


class LoopFigures:
    """What the loop is like, read when it is asked for."""

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
        yield GaugeMetricFamily(
            "blockhouse_operator_queue_overdue_seconds",
            "How long the key that waits longest has been due.",
            value=queue.overdue(),
        )
        yield CounterMetricFamily("blockhouse_operator_reconciles", "Reconciles of resources.", value=queue.reconciles)
        yield CounterMetricFamily(
            "blockhouse_operator_reconcile_failures",
            "Reconciles that failed and are tried again.",
            value=queue.failures,
        )
        yield self._unread(loop)
        yield self._watches(loop)
        yield from self._resources(loop)
        yield from throttle_figures(loop.reassignments.figures(), ("namespace", "reassignment"))

    def _unread(self, loop: OperatorLoop) -> Metric:
        unread = GaugeMetricFamily(
            "blockhouse_operator_namespace_unread",
            "1 for a namespace to be served that the API server does not let the operator read.",
            labels=["namespace"],
        )
        for namespace in sorted(loop.unread):
            unread.add_metric([namespace], 1.0)
        return unread

    def _watches(self, loop: OperatorLoop) -> Metric:
        ages = GaugeMetricFamily(
            "blockhouse_operator_watch_age_seconds",
            "Time since the API server was last heard on the watch of these children.",
            labels=["kind"],
        )
        for kind, age in loop.watch_ages().items():
            ages.add_metric([kind], age)
        return ages

    def _resources(self, loop: OperatorLoop) -> Iterator[Metric]:
        ready = GaugeMetricFamily(
            "blockhouse_operator_resource_ready",
            "1 while the condition Ready of a resource that is not suspended is True, as of the last list.",
            labels=["kind", "namespace", "name"],
        )
        for resource, is_ready in loop.inventory.ready.items():
            ready.add_metric(resource, float(is_ready))
        yield ready
        conditions = GaugeMetricFamily(
            "blockhouse_operator_resource_conditions",
            "Resources of a kind by condition and its status, as of the last list.",
            labels=["kind", "condition", "status"],
        )
        for condition, count in loop.inventory.conditions.items():
            conditions.add_metric(condition, count)
        yield conditions
        yield from _each(loop.inventory)


def _each(inventory: Inventory) -> Iterator[Metric]:
    """What is reported of single resources, and of the shards of a pipeline."""
    conditions = GaugeMetricFamily(
        "blockhouse_operator_resource_condition",
        "1 for a condition of a resource, but Ready, that is not as it is when all is well, as of the last list.",
        labels=["kind", "namespace", "name", "condition", "status"],
    )
    for condition in inventory.abnormal:
        conditions.add_metric(condition, 1.0)
    yield conditions
    rollouts = GaugeMetricFamily(
        "blockhouse_operator_rollouts",
        "Shards of a pipeline in which a replica restarts or is cloned (`rebuild`), or a table is changed (`tables`), "
        "as of the last list.",
        labels=["namespace", "pipeline", "change"],
    )
    for change, count in inventory.changing.items():
        rollouts.add_metric(change, count)
    yield rollouts


class HealthServer(HttpServer):
    """Serves on every address: probes come from the node. Everything it answers is harmless."""

    def __init__(self, port: int, figures: Figures, current: Current) -> None:
        figures.registry.register(LoopFigures(current))
        super().__init__("0.0.0.0", port, figures.registry)
        self._current = current

    def health(self) -> Answer:
        loop = self._current()
        sick = loop.sick() if loop is not None else ""
        return Answer(not sick, sick or "ok")

    def readiness(self) -> Answer:
        """A candidate that waits for the lease is ready: it is ready to take over."""
        return Answer(True, "leading" if self._current() else "standing by")
