"""A verifier that runs until it is stopped: a watch per cluster, all anomalies in one place, and an HTTP API."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter

import structlog
from prometheus_client import CollectorRegistry

from blockhouse.config.verifier import VerifierConfig
from blockhouse.contract.verifier import AnomalyReport, Verdict
from blockhouse_aggregator.verifier.anomalies import Anomalies
from blockhouse_aggregator.verifier.anomaly import Anomaly, iso
from blockhouse_aggregator.verifier.cluster import ClusterWatch
from blockhouse_aggregator.verifier.events import EventSink
from blockhouse_aggregator.verifier.figures import Figures
from blockhouse_aggregator.verifier.http import VerifierServer
from blockhouse_aggregator.verifier.streams import unmatched

log = structlog.get_logger(__name__)
EXIT_OK, EXIT_DEAD = 0, 71
_END_SECONDS = 20.0
_CHECK_SECONDS = 1.0


class Verifier:
    """Runs until SIGTERM, or until a watch dies of something unforeseen."""

    def __init__(self, config: VerifierConfig) -> None:
        self.config = config
        self._anomalies = Anomalies(config.max_anomalies, self._report)
        self.watches = [ClusterWatch(config, cluster, self._anomalies) for cluster in config.clusters]
        self._figures = Figures(self.watches)
        self.registry = CollectorRegistry()
        self.registry.register(self._figures)
        self._events = EventSink(config.kubernetes_events, config.pipeline) if config.kubernetes_events else None

    async def run(self) -> int:
        """Returns the exit code."""
        ending = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ending.set)
        server = VerifierServer(self.config.admin, self)
        await server.start()
        log.info("verifier.starts", pipeline=self.config.pipeline, port=server.port)
        for watch in self.watches:
            watch.start()
        while self.alive and not ending.is_set():
            self._count()
            try:
                await asyncio.wait_for(ending.wait(), _CHECK_SECONDS)
            except TimeoutError:
                continue
        deadline = time.monotonic() + _END_SECONDS
        for watch in self.watches:
            await asyncio.to_thread(watch.stop, max(0.1, deadline - time.monotonic()))
        if self._events is not None:
            await asyncio.to_thread(self._events.close)
        await server.stop()
        return EXIT_OK if self.alive else EXIT_DEAD

    @property
    def alive(self) -> bool:
        return all(watch.failure is None for watch in self.watches)

    @property
    def ready(self) -> bool:
        return all(watch.ready for watch in self.watches)

    def anomalies(self) -> list[AnomalyReport]:
        """Every anomaly that is kept, newest first."""
        return [anomaly.report(self.config.table_names) for anomaly in self._current()]

    def verdict(self) -> Verdict:
        """The state of the pipeline as known at this moment."""
        found = self._current()
        coverage = {watch.name: watch.coverage() for watch in self.watches}
        earliest = [seen.earliest for seen in coverage.values() if seen.earliest]
        problems = unmatched(self.config.groups, self.config.topics, [watch.streams for watch in self.watches])
        sound = all(watch.in_sight for watch in self.watches) and not problems
        return Verdict(
            pipeline=self.config.pipeline,
            verdict="anomalies" if found else "clean" if sound else "unknown",
            anomalies=len(found),
            streams=sum(seen.streams for seen in coverage.values()),
            since=min(earliest, default=None),
            at=iso(_now_ms()),
            coverage=coverage,
            problems=tuple(problems),
            latest=found[0].report(self.config.table_names) if found else None,
        )

    def _current(self) -> list[Anomaly]:
        return self._anomalies.current(_now_ms(), int(self.config.anomaly_retention * 1000))

    def _count(self) -> None:
        self._anomalies.purge(_now_ms(), int(self.config.anomaly_retention * 1000))
        self._figures.open = dict(Counter((a.stream.cluster, a.finding.kind) for a in self._current()))

    def _report(self, anomaly: Anomaly) -> None:
        """Called from the watches' threads, once when an anomaly is found and once when a lasting one has ended."""
        report = anomaly.report(self.config.table_names)
        if anomaly.ended_ms is not None:
            log.info("anomaly.ended", **report.written())
            return
        self._figures.found[anomaly.stream.cluster, anomaly.finding.kind] += 1
        log.error("anomaly", **report.written())
        if self._events is not None:
            self._events.put(anomaly, report)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
