"""Prometheus figures of a verifier, read off its state when asked. Labels: clusters and kinds only, so few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from blockhouse_aggregator.verifier.anomaly import Kind
from blockhouse_aggregator.verifier.cluster import ClusterWatch

_COUNTS = {
    "commits": ("blockhouse_verifier_commits", "Commits of the pipeline's streams that were checked"),
    "unseen": ("blockhouse_verifier_unseen_commits", "Commits that compaction had removed before they were read"),
    "tombstones": ("blockhouse_verifier_tombstones", "Streams whose committed offset was removed"),
    "damaged": ("blockhouse_verifier_damaged_records", "Records of the offsets topic that could not be parsed"),
    "unknownVersions": ("blockhouse_verifier_unknown_records", "Commits of a version this release does not know"),
}


class Figures(Collector):
    """`found` counts anomalies by (cluster, kind) since the start; `open` are those that count in the verdict now."""

    def __init__(self, watches: Sequence[ClusterWatch]) -> None:
        self._watches = watches
        self.found: dict[tuple[str, Kind], int] = {(w.name, kind): 0 for w in watches for kind in Kind}
        self.open: dict[tuple[str, Kind], int] = {}

    def collect(self) -> Iterator[Metric]:
        labels = ["cluster"]
        coverage = {watch.name: watch.coverage() for watch in self._watches}
        for key, (name, text) in _COUNTS.items():
            counter = CounterMetricFamily(name, text, labels=labels)
            for cluster, seen in coverage.items():
                counter.add_metric([cluster], seen[key])
            yield counter
        streams = GaugeMetricFamily("blockhouse_verifier_streams", "Streams under watch", labels=labels)
        in_sight = GaugeMetricFamily(
            "blockhouse_verifier_in_sight", "1 while the cluster is read to its end and answers", labels=labels
        )
        for cluster, seen in coverage.items():
            streams.add_metric([cluster], seen["streams"])
            in_sight.add_metric([cluster], 1.0 if seen["state"] == "watching" else 0.0)
        yield streams
        yield in_sight
        total = CounterMetricFamily("blockhouse_anomalies", "Anomalies found", labels=["cluster", "kind"])
        for (cluster, kind), number in self.found.items():
            total.add_metric([cluster, str(kind)], number)
        yield total
        current = GaugeMetricFamily(
            "blockhouse_anomalies_current", "Anomalies that count in the verdict", labels=["cluster", "kind"]
        )
        for (cluster, kind), number in self.open.items():
            current.add_metric([cluster, str(kind)], number)
        yield current
