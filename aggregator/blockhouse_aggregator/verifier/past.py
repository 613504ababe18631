"""The history as it is now, read once: for `blockhouse verify` and `blockhouse streams history`.

Reads, and leaves nothing behind: no checkpoint, no group, no offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.verifier import VerifierConfig
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse_aggregator.verifier.anomaly import Anomaly
from blockhouse_aggregator.verifier.checks.sequence import Judgement, Known
from blockhouse_aggregator.verifier.coverage import history_coverage
from blockhouse_aggregator.verifier.history import Line, line_of
from blockhouse_aggregator.verifier.offsets.bounds import LogBounds
from blockhouse_aggregator.verifier.offsets.evidence import Evidence
from blockhouse_aggregator.verifier.offsets.reader import NoCommitsYet, OffsetsReader
from blockhouse_aggregator.verifier.streams import ClusterStreams, Record, unmatched
from blockhouse_aggregator.verifier.watched import WatchedStream

_PATIENCE = 20.0
"""Seconds without a record after which a cluster counts as not readable."""
_FIRST_ANSWER = 4.0
"""Seconds a cluster has to answer at all: a dead one must not keep a person from what the others have."""
_LOOKS = 2
_NEVER_STALLED = float("inf")


class CouldNotLook(BlockhouseError):
    """A cluster could not be read to its end; of a whole look: nothing can be judged."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Report:
    """`clusters` are those that were read to the end they had; `problems` is what was not judged, and why."""

    pipeline: str
    anomalies: tuple[Anomaly, ...]
    clusters: dict[str, ClusterStreams]
    problems: tuple[str, ...] = ()

    @property
    def verdict(self) -> Literal["clean", "anomalies", "unknown"]:
        """As a running verifier's: `unknown` while something was not judged and the rest has no anomaly."""
        if self.anomalies:
            return "anomalies"
        return "unknown" if self.problems else "clean"

    def to_json(self, names: dict[str, str]) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "verdict": self.verdict,
            "streams": sum(len(streams.streams) for streams in self.clusters.values()),
            "coverage": {name: history_coverage(streams).written() for name, streams in self.clusters.items()},
            "problems": list(self.problems),
            "anomalies": [anomaly.report(names).written() for anomaly in self.anomalies],
        }


def verify(config: VerifierConfig, since_ms: int | None = None) -> Report:
    """Judge everything committed since `since_ms` (all there is, when None) in the clusters that can be read. Raises
    CouldNotLook when none can be, or when they could and what is asked for is not in them."""
    found: list[Anomaly] = []
    clusters: dict[str, ClusterStreams] = {}
    problems: list[str] = []
    for cluster in config.clusters:
        streams = ClusterStreams(cluster.name, config.groups, config.topics)
        now_ms = time.time_ns() // 1_000_000
        try:
            for records in read_all(cluster, streams, since_ms):
                found += streams.observe(records, now_ms)
            found += _against_the_logs(cluster, streams, now_ms, config.hole_check)
            clusters[cluster.name] = streams
        except CouldNotLook as error:
            problems.append(str(error))
    missing = unmatched(config.groups, config.topics, clusters.values())
    if not clusters or (missing and not problems):
        raise CouldNotLook("; ".join(problems or missing))
    return Report(config.pipeline, tuple(found), clusters, (*problems, *missing))


def read_all(cluster: KafkaCluster, streams: ClusterStreams, since_ms: int | None) -> Iterator[list[Record]]:
    """The records of a cluster's offsets topic from `since_ms` to its present end. Raises CouldNotLook."""
    try:
        with closing(OffsetsReader(cluster, first_answer=_FIRST_ANSWER)) as reader:
            partitions = reader.partitions()
            starts = reader.since(partitions, since_ms) if since_ms is not None else dict.fromkeys(partitions, -1)
            left = {number for number, (begin, end) in partitions.items() if max(starts[number], begin) < end}
            for number in partitions:
                streams.expect(number, partitions[number][1])
                if since_ms is not None:
                    streams.skip_into(number)
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


def _against_the_logs(cluster: KafkaCluster, streams: ClusterStreams, now_ms: int, most: int) -> list[Anomaly]:
    """Positions against their logs, and suspicions that only the cluster can settle; a stall takes longer than a look.
    Raises CouldNotLook."""
    found: list[Anomaly] = []
    asking = LogBounds(cluster)
    evidence = Evidence(cluster, most, unhurried=True)
    try:
        for _ in range(_LOOKS):
            bounds = asking.ask([stream.id for stream in streams.streams.values() if stream.known is not None])
            judged = streams.inspect(bounds, time.monotonic(), now_ms, _NEVER_STALLED)
            found += [anomaly for anomaly, holds in judged if holds]
            found += streams.settle(evidence.answers(streams.doubts(bounds), bounds), bounds)
    except BlockhouseError as error:
        raise CouldNotLook(str(error)) from error
    if left := streams.doubts(bounds):
        raise CouldNotLook(f"Kafka cluster {cluster.name}: {left[0].stream}: {left[0].finding.message}: not answered")
    return found


def commits_of(
    config: VerifierConfig, requested: Callable[[str], bool], since_ms: int | None, problems: list[str]
) -> Iterator[tuple[int, tuple[str, Line]]]:
    """(time, (stream, its line)) of every commit of the requested streams, cluster by cluster. Why a cluster could not
    be read to its end is added to `problems`. Raises CouldNotLook when none could be."""
    lines: list[tuple[int, tuple[str, Line]]] = []

    def collect(stream: WatchedStream, before: Known | None, judged: Judgement) -> None:
        if requested(str(stream.id)):
            unread = judged.known is before and bool(judged.findings)
            line = line_of(before, None if unread else judged.known, stream.offset, judged.findings, config.table_names)
            lines.append((stream.at_ms, (str(stream.id), line)))

    for cluster in config.clusters:
        streams = ClusterStreams(cluster.name, config.groups, config.topics, collect)
        try:
            for records in read_all(cluster, streams, since_ms):
                for _ in streams.observe(records, 0):
                    pass
                yield from lines
                lines.clear()
        except CouldNotLook as error:
            problems.append(str(error))
    if len(problems) == len(config.clusters):
        raise CouldNotLook("; ".join(problems))
