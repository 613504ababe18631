"""The history as it is now, read once: for `blockhouse verify` and `blockhouse streams history`.

Reads, and leaves nothing behind: no checkpoint, no group, no offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.verifier import VerifierConfig
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse_aggregator.verifier.anomaly import Anomaly, iso
from blockhouse_aggregator.verifier.checks.sequence import Judgement, Known
from blockhouse_aggregator.verifier.history import Line, line_of
from blockhouse_aggregator.verifier.offsets.bounds import LogBounds
from blockhouse_aggregator.verifier.offsets.reader import NoCommitsYet, OffsetsReader
from blockhouse_aggregator.verifier.streams import ClusterStreams, Record, WatchedStream

_PATIENCE = 20.0
"""Seconds without a record after which a cluster counts as not readable."""
_LOOKS = 2
_FOR_EVER = float("inf")


class CouldNotLook(BlockhouseError):
    """Nothing can be said: a cluster could not be read to its end."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Report:
    """`clean` only when every cluster was read to the end it had."""

    pipeline: str
    anomalies: tuple[Anomaly, ...]
    clusters: dict[str, ClusterStreams]

    @property
    def clean(self) -> bool:
        return not self.anomalies

    def to_json(self, names: dict[str, str]) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "verdict": "clean" if self.clean else "anomalies",
            "streams": sum(len(streams.streams) for streams in self.clusters.values()),
            "coverage": {name: coverage(streams) for name, streams in self.clusters.items()},
            "anomalies": [anomaly.to_json(names) for anomaly in self.anomalies],
        }


def coverage(streams: ClusterStreams) -> dict[str, Any]:
    """What was seen of a cluster and what was not."""
    return {
        "partitions": len(streams.progress),
        "streams": len(streams.streams),
        "commits": streams.counts["commits"],
        "unseen": streams.counts["unseen"],
        "missingRecords": sum(progress.missing for progress in streams.progress.values()),
        "tombstones": streams.counts["tombstones"],
        "damaged": streams.counts["damaged"],
        "unknownVersions": streams.counts["unknownVersions"],
        "earliest": None if streams.earliest_ms is None else iso(streams.earliest_ms),
        "latest": None if streams.latest_ms is None else iso(streams.latest_ms),
    }


def verify(config: VerifierConfig, since_ms: int | None = None) -> Report:
    """Judge everything committed since `since_ms` (all there is, when None). Raises CouldNotLook."""
    found: list[Anomaly] = []
    clusters: dict[str, ClusterStreams] = {}
    for cluster in config.clusters:
        streams = clusters[cluster.name] = ClusterStreams(cluster.name, config.groups, config.topics)
        now_ms = time.time_ns() // 1_000_000
        for records in read_all(cluster, streams, since_ms):
            found += streams.observe(records, now_ms)
        found += _against_the_logs(cluster, streams, now_ms)
    return Report(config.pipeline, tuple(found), clusters)


def read_all(cluster: KafkaCluster, streams: ClusterStreams, since_ms: int | None) -> Iterator[list[Record]]:
    """The records of a cluster's offsets topic from `since_ms` to its present end. Raises CouldNotLook."""
    try:
        with closing(OffsetsReader(cluster)) as reader:
            partitions = reader.partitions()
            starts = reader.since(partitions, since_ms) if since_ms is not None else dict.fromkeys(partitions, -1)
            left = {number for number, (begin, end) in partitions.items() if max(starts[number], begin) < end}
            for number in partitions:
                streams.expect(number, partitions[number][1])
            reader.start(starts)
            heard = time.monotonic()
            while left:
                batch = reader.read(0.5)
                if batch.records or batch.ends:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _PATIENCE:
                    raise CouldNotLook(f"Kafka cluster {cluster.name}: nothing came for {_PATIENCE:g} s")
                yield batch.records
                left -= {p for p, offset, _, _ in batch.records if offset + 1 >= partitions[p][1]} | batch.ends.keys()
    except NoCommitsYet:
        return
    except Retryable as error:
        raise CouldNotLook(str(error)) from error


def _against_the_logs(cluster: KafkaCluster, streams: ClusterStreams, now_ms: int) -> list[Anomaly]:
    """Positions beyond their logs, and suspicions that only the log can settle; a stall takes longer than a look."""
    found: list[Anomaly] = []
    asking = LogBounds(cluster)
    try:
        for _ in range(_LOOKS):
            bounds = asking.ask([stream.id for stream in streams.streams.values() if stream.known is not None])
            told = streams.inspect(bounds, time.monotonic(), now_ms, _FOR_EVER)
            found += [anomaly for anomaly, holds in told if holds]
    except BlockhouseError as error:
        raise CouldNotLook(str(error)) from error
    return found


def commits_of(
    config: VerifierConfig, wanted: Callable[[str], bool], since_ms: int | None
) -> Iterator[tuple[int, tuple[str, Line]]]:
    """(time, (stream, what it says)) of every commit of the wanted streams, cluster by cluster. Raises CouldNotLook."""
    told: list[tuple[int, tuple[str, Line]]] = []

    def tell(stream: WatchedStream, before: Known | None, judged: Judgement) -> None:
        if wanted(str(stream.id)):
            unread = judged.known is before and bool(judged.findings)
            line = line_of(before, None if unread else judged.known, stream.offset, judged.findings, config.table_names)
            told.append((stream.at_ms, (str(stream.id), line)))

    for cluster in config.clusters:
        streams = ClusterStreams(cluster.name, config.groups, config.topics, tell)
        for records in read_all(cluster, streams, since_ms):
            for _ in streams.observe(records, 0):
                pass
            yield from told
            told.clear()
