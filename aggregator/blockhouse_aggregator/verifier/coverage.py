"""How much of a cluster's history was read: the part of a verdict that `blockhouse verify` reports too."""

from __future__ import annotations

from blockhouse.contract.verifier import HistoryCoverage
from blockhouse_aggregator.verifier.anomaly import iso_or_none
from blockhouse_aggregator.verifier.streams import ClusterStreams
from blockhouse_aggregator.verifier.watched import UNKNOWN_VERSIONS


def history_coverage(streams: ClusterStreams) -> HistoryCoverage:
    """What was seen of a cluster and what was not."""
    counts = streams.counts
    return HistoryCoverage(
        partitions=len(streams.progress),
        streams=len(streams.streams),
        commits=counts["commits"],
        unseen=counts["unseen"],
        missing_records=sum(progress.lacks for progress in streams.progress.values()),
        unchecked=counts["unchecked"],
        tombstones=counts["tombstones"],
        damaged=counts["damaged"],
        unknown_versions=counts[UNKNOWN_VERSIONS],
        earliest=iso_or_none(streams.earliest_ms),
        latest=iso_or_none(streams.latest_ms),
    )
