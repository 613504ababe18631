"""The streams of one Kafka cluster: every commit goes through here and is held against the one before it.

No I/O and no clock: records and times are handed in, anomalies come out. One thread at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from blockhouse.metadata.reading import Reading
from blockhouse.streams import StreamId
from blockhouse_aggregator.verifier.anomaly import Anomaly, Finding, Kind
from blockhouse_aggregator.verifier.checks.sequence import Judgement, Known, judge
from blockhouse_aggregator.verifier.checks.standing import Bounds, Standing, look
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
    standing: Standing = field(default_factory=Standing)
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

    @property
    def behind(self) -> int:
        """Offsets between what was read and the end last heard of."""
        return max(0, (self.end or 0) - self.next)

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


Tell = Callable[[WatchedStream, Known | None, Judgement], None]


class ClusterStreams:
    """All streams of one cluster. `groups` and `topics` are names or patterns. `tell` hears of every commit what was
    known before it and how it was judged."""

    def __init__(
        self, cluster: str, groups: Sequence[str], topics: Sequence[str] = ("*",), tell: Tell | None = None
    ) -> None:
        self.cluster = cluster
        self._tell = tell
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

    def expect(self, partition: int, end: int) -> None:
        """The partition ends at `end` now: once that is reached, its history is known."""
        self.progress.setdefault(partition, LogProgress()).end = end

    def break_off(self, partition: int) -> None:
        """The partition is not the log it was: whatever its streams say next, anything may lie between."""
        self.progress[partition].broken()
        self.counts["breaks"] += 1
        for stream in self.streams.values():
            if stream.log_partition == partition:
                stream.log_offset = -1

    def remember(self, stream: WatchedStream) -> None:
        """A stream as it was known before a restart."""
        self.streams[stream.group, stream.id.topic, stream.id.partition] = stream

    def inspect(
        self, bounds: Mapping[StreamId, Bounds], now: float, now_ms: int, stalled_after: float
    ) -> Iterator[tuple[Anomaly, bool]]:
        """Hold every stream against its log; `now`: of a steady clock, in seconds. Yields (anomaly, whether it holds):
        each lasting one when it begins and when it is over, and suspicions that have proved true."""
        for stream in self.streams.values():
            found = bounds.get(stream.id)
            if found is None or stream.known is None:
                continue
            for suspicion in stream.suspicions:
                if _confirmed(suspicion, stream.known, found):
                    yield suspicion, True
            stream.suspicions.clear()
            yield from self._lasting(stream, look(stream.standing, stream.known, found, now, stalled_after), now_ms)

    def _lasting(self, stream: WatchedStream, findings: list[Finding], now_ms: int) -> Iterator[tuple[Anomaly, bool]]:
        holding = {(finding.kind, finding.table): finding for finding in findings}
        for key in stream.lasting.keys() - holding.keys():
            yield stream.lasting.pop(key), False
        for key, finding in holding.items():
            if key not in stream.lasting:
                stream.lasting[key] = anomaly_of(stream, finding, stream.text, stream.text, now_ms)
                yield stream.lasting[key], True

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
        before, known = stream.text, stream.known
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
        if self._tell is not None:
            self._tell(stream, known, judged)
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


def _confirmed(suspicion: Anomaly, known: Known, bounds: Bounds) -> bool:
    """Retention explains it when the log begins there; so does a topic that is gone."""
    limit = suspicion.finding.unless_log_begins
    gone = isinstance(known, Reading) and bounds.topic_id not in ("", known.topic_id)
    return limit is not None and bounds.begin < limit and not gone
