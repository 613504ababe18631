"""Prometheus figures of a verifier, read off its state when asked. Labels: clusters and kinds only, so few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from blockhouse.contract.verifier import WATCHING, Coverage
from blockhouse_aggregator.verifier.anomaly import Kind
from blockhouse_aggregator.verifier.cluster import ClusterWatch

_COUNTS: tuple[tuple[str, str, Callable[[Coverage], int]], ...] = (
    ("commits", "Commits of the pipeline's streams that were checked", lambda seen: seen.commits),
    ("unseen_commits", "Commits that compaction had removed before they were read", lambda seen: seen.unseen),
    ("unchecked_holes", "Claims of holes whose range was too long to read", lambda seen: seen.unchecked),
    ("tombstones", "Streams whose committed offset was removed", lambda seen: seen.tombstones),
    ("damaged_records", "Records of the offsets topic that could not be parsed", lambda seen: seen.damaged),
    ("unknown_records", "Commits of a version this release does not know", lambda seen: seen.unknown_versions),
)
"""Name without `blockhouse_verifier_`, help text, value."""


class Figures(Collector):
    """`found` counts anomalies by (cluster, kind) since the start; `open` are those that count in the verdict now."""

    def __init__(self, watches: Sequence[ClusterWatch]) -> None:
        self._watches = watches
        self.found: dict[tuple[str, Kind], int] = {(w.name, kind): 0 for w in watches for kind in Kind}
        self.open: dict[tuple[str, Kind], int] = {}

    def collect(self) -> Iterator[Metric]:
        labels = ["cluster"]
        coverage = {watch.name: watch.coverage() for watch in self._watches}
        for name, text, count in _COUNTS:
            counter = CounterMetricFamily(f"blockhouse_verifier_{name}", text, labels=labels)
            for cluster, seen in coverage.items():
                counter.add_metric([cluster], count(seen))
            yield counter
        streams = GaugeMetricFamily("blockhouse_verifier_streams", "Streams under watch", labels=labels)
        in_sight = GaugeMetricFamily(
            "blockhouse_verifier_in_sight", "1 while the cluster is read to its end and answers", labels=labels
        )
        for cluster, seen in coverage.items():
            streams.add_metric([cluster], seen.streams)
            in_sight.add_metric([cluster], 1.0 if seen.state == WATCHING else 0.0)
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
