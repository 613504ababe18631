"""The streams of one Kafka cluster: every commit goes through here and is held against the one before it.

No I/O and no clock: records and times are handed in, anomalies come out. One thread at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from blockhouse.metadata.reading import Reading
from blockhouse.streams import StreamId
from blockhouse_aggregator.verifier.anomaly import Anomaly, Finding, Kind
from blockhouse_aggregator.verifier.checks.sequence import Known, judge
from blockhouse_aggregator.verifier.offsets.records import Damaged, UnknownVersion, parse_key, parse_value

Record = tuple[int, int, bytes | None, bytes | None]
"""(partition, offset, key, value) of a record of the offsets topic."""

NEVER = 1 << 62
"""More records than a partition can lack: after a break of the history anything may be missing."""


@dataclass(slots=True)
class WatchedStream:
    """What is remembered of one stream of one group. `text` is of the last readable commit and `known` what it says;
    `offset` to `missing` are of the last commit: `missing` is what its partition lacked by then. `suspicions` wait for
    the bounds of the log, `lasting` are the anomalies that hold now."""

    id: StreamId
    group: str
    known: Known | None = None
    text: str = ""
    offset: int = -1
    log_partition: int = -1
    log_offset: int = -1
    at_ms: int = 0
    missing: int = 0
    commits: int = 0
    unseen: int = 0
    forgotten: bool = False
    changed: bool = False
    suspicions: list[Anomaly] = field(default_factory=list)
    lasting: dict[tuple[Kind, str | None], Anomaly] = field(default_factory=dict)

    @property
    def position(self) -> int | None:
        """Everything below it has been scanned; None before the first metadata that says so."""
        return self.known.position if isinstance(self.known, Reading) else None


@dataclass(slots=True)
class LogProgress:
    """How far one partition of the offsets topic has been read. `missing` counts the records it lacks: compacted away,
    or markers of transactions, which are no records for us."""

    next: int = -1
    missing: int = 0
    end: int | None = None

    def pass_to(self, offset: int) -> None:
        """The record at `offset` comes next: whatever lies between does not exist any more."""
        if self.next >= 0 and offset > self.next:
            self.missing += offset - self.next
        self.next = offset + 1

    def reached(self, end: int) -> None:
        """The log ends at `end` now, and everything below it was read."""
        if self.next >= 0 and end > self.next:
            self.missing += end - self.next
        self.next = max(self.next, end)

    def broken(self) -> None:
        """The log is not the one that was read before: anything may be missing."""
        self.next, self.missing = -1, self.missing + NEVER


class ClusterStreams:
    """All streams of one cluster. `groups` and `topics` are names or patterns."""

    def __init__(self, cluster: str, groups: Sequence[str], topics: Sequence[str] = ("*",)) -> None:
        self.cluster = cluster
        self._groups, self._topics = tuple(groups), tuple(topics)
        self.streams: dict[tuple[str, str, int], WatchedStream] = {}
        self.progress: dict[int, LogProgress] = {}
        self.counts: Counter[str] = Counter()
        self.earliest_ms: int | None = None
        self.latest_ms: int | None = None
        self._by_key: dict[bytes, WatchedStream | None] = {}

    def observe(self, records: Iterable[Record], now_ms: int) -> Iterator[Anomaly]:
        """Take records in the order of each partition's log; yields what is wrong with them."""
        for partition, offset, key, value in records:
            progress = self.progress.get(partition)
            if progress is None:
                progress = self.progress[partition] = LogProgress()
            if offset < progress.next:
                continue  # read before the restart
            progress.pass_to(offset)
            if key is None:
                continue
            try:
                stream = self._by_key[key]
            except KeyError:
                stream = self._by_key[key] = self._find(key)
            if stream is not None and offset > stream.log_offset:
                stream.log_partition, stream.log_offset = partition, offset
                yield from self._commit(stream, value, progress.missing, now_ms)

    def _find(self, key: bytes) -> WatchedStream | None:
        try:
            parsed = parse_key(key)
        except Damaged:
            self.counts["damaged"] += 1
            return None
        if parsed is None or not any(fnmatchcase(parsed.group, pattern) for pattern in self._groups):
            return None
        if not any(fnmatchcase(parsed.topic, pattern) for pattern in self._topics):
            self.counts["otherTopics"] += 1
            return None
        if parsed not in self.streams:
            id_ = StreamId(self.cluster, parsed.topic, parsed.partition)
            self.streams[parsed] = WatchedStream(id_, parsed.group)
        return self.streams[parsed]

    def _commit(self, stream: WatchedStream, raw: bytes | None, missing: int, now_ms: int) -> Iterator[Anomaly]:
        if raw is None:
            self.counts["tombstones"] += 1
            stream.forgotten = stream.changed = True
            return
        try:
            value = parse_value(raw)
        except UnknownVersion:
            self.counts["unknownVersions"] += 1
            return
        except Damaged:
            self.counts["damaged"] += 1
            return
        self.counts["commits"] += 1
        before = stream.text
        judged = judge(stream.known, value.offset, value.metadata, missing - stream.missing)
        if judged.unseen:
            self.counts["unseen"] += judged.unseen
            stream.unseen += judged.unseen
        if judged.known is not stream.known:
            stream.known, stream.text = judged.known, value.metadata
        stream.offset, stream.at_ms, stream.missing = value.offset, value.at_ms, missing
        stream.commits += 1
        stream.forgotten, stream.changed = False, True
        self._note_time(value.at_ms)
        for finding in judged.findings:
            anomaly = anomaly_of(stream, finding, before, value.metadata, now_ms)
            if finding.unless_log_begins is not None:
                stream.suspicions.append(anomaly)
            else:
                yield anomaly

    def _note_time(self, at_ms: int) -> None:
        if self.earliest_ms is None or at_ms < self.earliest_ms:
            self.earliest_ms = at_ms
        if self.latest_ms is None or at_ms > self.latest_ms:
            self.latest_ms = at_ms

    @property
    def caught_up(self) -> bool:
        """Every partition of the offsets topic was read to the end it had when it was asked for."""
        known = self.progress.values()
        return bool(known) and all(p.end is not None and p.next >= p.end for p in known)


def anomaly_of(stream: WatchedStream, finding: Finding, before: str, after: str, now_ms: int) -> Anomaly:
    """`finding` with its evidence; `before` and `after` are metadata texts."""
    return Anomaly(
        finding=finding,
        stream=stream.id,
        group=stream.group,
        before=before,
        after=after,
        log_partition=stream.log_partition,
        log_offset=stream.log_offset,
        at_ms=stream.at_ms,
        found_ms=now_ms,
    )
