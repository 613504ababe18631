"""The streams of one Kafka cluster: every commit goes through here and is held against the one before it.

No I/O and no clock: records and times are handed in, anomalies come out. One thread at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from blockhouse.metadata.reading import Reading, read
from blockhouse.streams import StreamId
from blockhouse_aggregator.verifier.anomaly import LASTING, Anomaly, CommitCompacted, EpochReaches, Finding
from blockhouse_aggregator.verifier.checks.sequence import Judgement, Known, Lacking, judge
from blockhouse_aggregator.verifier.checks.standing import Bounds, look
from blockhouse_aggregator.verifier.checks.succession import truncated
from blockhouse_aggregator.verifier.offsets.records import Damaged, UnknownVersion, parse_key, parse_value
from blockhouse_aggregator.verifier.watched import (
    OTHER_TOPICS,
    UNKNOWN_VERSIONS,
    Answer,
    LogProgress,
    WatchedStream,
    anomaly_of,
)

Record = tuple[int, int, bytes | None, bytes | None]
"""(partition, offset, key, value) of a record of the offsets topic."""

OnJudged = Callable[[WatchedStream, Known | None, Judgement], None]


class ClusterStreams:
    """All streams of one cluster. `groups` and `topics` are names or patterns. `on_judged` is called for every commit
    with what was known before it and how it was judged."""

    def __init__(
        self, cluster: str, groups: Sequence[str], topics: Sequence[str] = ("*",), on_judged: OnJudged | None = None
    ) -> None:
        self.cluster = cluster
        self._on_judged = on_judged
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
                excuse = CommitCompacted(partition, stream.log_offset) if stream.log_offset >= 0 else None
                lacking = Lacking(progress.missing - stream.missing, excuse)
                stream.log_partition, stream.log_offset = partition, offset
                yield from self._commit(stream, value, lacking, now_ms)

    def expect(self, partition: int, end: int) -> None:
        """The partition ends at `end` now: once that is reached, its history is known."""
        self.progress.setdefault(partition, LogProgress()).end = end

    def skip_into(self, partition: int) -> None:
        """The partition is read from the middle on: any number of commits may lie before."""
        self.progress.setdefault(partition, LogProgress()).broken()

    def break_off(self, partition: int) -> None:
        """The partition is not the log it was: whatever its streams commit next, anything may lie between."""
        self.progress[partition].broken()
        self.counts["breaks"] += 1
        for stream in self.streams.values():
            if stream.log_partition == partition:
                stream.log_offset = -1

    def remember(self, stream: WatchedStream) -> None:
        """A stream as it was known before a restart."""
        self.streams[stream.group, stream.id.topic, stream.id.partition] = stream

    def doubts(self, bounds: Mapping[StreamId, Bounds]) -> list[Anomaly]:
        """Suspicions that only the cluster can settle: of commits, and of positions since their logs have new leaders.
        Each is kept until `settle` hears of it."""
        open_: list[Anomaly] = []
        for stream in self.streams.values():
            found, known = bounds.get(stream.id), stream.known
            if found is None:  # the topic does not exist, or has no leader now
                open_ += [s for s in stream.suspicions if isinstance(s.finding.unless, CommitCompacted)]
                continue
            if isinstance(known, Reading) and known.topic_id == found.topic_id and found.leader_epoch > stream.epoch:
                stream.epoch = found.leader_epoch
                if 0 <= known.leader_epoch < found.leader_epoch:
                    suspicion = anomaly_of(stream, truncated(known), stream.text, stream.text, stream.at_ms)
                    stream.suspicions.append(suspicion)
                    stream.changed = True
            open_ += stream.suspicions
        return open_

    def settle(self, answers: Iterable[tuple[Anomaly, Answer]], bounds: Mapping[StreamId, Bounds]) -> Iterator[Anomaly]:
        """Forget the suspicions that were answered; yields those that have proved true."""
        for suspicion, answer in answers:
            stream = self.streams[suspicion.group, suspicion.stream.topic, suspicion.stream.partition]
            if answer is Answer.NOT_NOW:
                continue
            stream.suspicions = [other for other in stream.suspicions if other is not suspicion]
            stream.changed = True
            if answer is Answer.UNREAD:
                self.counts["unchecked"] += 1
            elif answer is Answer.NO and not _of_a_gone_topic(suspicion, bounds):
                yield suspicion

    def inspect(
        self, bounds: Mapping[StreamId, Bounds], now: float, now_ms: int, stalled_after: float
    ) -> Iterator[tuple[Anomaly, bool]]:
        """Hold every stream against its log; `now`: of a steady clock, in seconds. Yields (anomaly, whether it holds):
        each lasting one when it begins and when it is over, and others once."""
        for stream in self.streams.values():
            found = bounds.get(stream.id)
            if found is None or stream.known is None:
                continue
            yield from self._lasting(stream, look(stream.standing, stream.known, found, now, stalled_after), now_ms)

    def _lasting(self, stream: WatchedStream, findings: list[Finding], now_ms: int) -> Iterator[tuple[Anomaly, bool]]:
        for finding in findings:
            if finding.kind not in LASTING:
                yield anomaly_of(stream, finding, stream.text, stream.text, now_ms), True
        holding = {(finding.kind, finding.table): finding for finding in findings if finding.kind in LASTING}
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
            self.counts[OTHER_TOPICS] += 1
            return None
        if parsed not in self.streams:
            id_ = StreamId(self.cluster, parsed.topic, parsed.partition)
            self.streams[parsed] = WatchedStream(id_, parsed.group)
        return self.streams[parsed]

    def _commit(self, stream: WatchedStream, raw: bytes | None, lacking: Lacking, now_ms: int) -> Iterator[Anomaly]:
        if raw is None:
            self.counts["tombstones"] += 1
            stream.forgotten = stream.changed = True
            return
        try:
            value = parse_value(raw)
        except UnknownVersion:
            self.counts[UNKNOWN_VERSIONS] += 1
            return
        except Damaged:
            self.counts["damaged"] += 1
            return
        self.counts["commits"] += 1
        before, known = stream.text, stream.known
        judged = judge(stream.known, value.offset, value.metadata, lacking, stream.chosen)
        if judged.unseen:
            self.counts["unseen"] += judged.unseen
            stream.unseen += judged.unseen
        if judged.known is not stream.known:
            stream.known, stream.text = judged.known, value.metadata
        stream.offset, stream.at_ms, stream.chosen = value.offset, value.at_ms, judged.chosen
        stream.missing += lacking.records
        stream.commits += 1
        if isinstance(stream.known, Reading) and stream.known.leader_epoch < stream.epoch:
            stream.epoch = -1  # a position of an epoch that was over: it is held against the log again
        stream.forgotten, stream.changed = False, True
        self._note_time(value.at_ms)
        if self._on_judged is not None:
            self._on_judged(stream, known, judged)
        for finding in judged.findings:
            anomaly = anomaly_of(stream, finding, before, value.metadata, now_ms)
            if finding.unless is not None:
                stream.suspect(anomaly)
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


def unmatched(groups: Sequence[str], topics: Sequence[str], clusters: Iterable[ClusterStreams]) -> list[str]:
    """What is asked for and found nowhere: a judge of nothing must not report that all is well."""
    keys = [key for cluster in clusters for key in list(cluster.streams)]
    found: list[str] = []
    for what, patterns, part in (("group", groups, 0), ("topic", topics, 1)):
        names = {str(key[part]) for key in keys}
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                found.append(f"no commit of a {what} {pattern!r} was found in any Kafka cluster: is the name right?")
    return found


def _of_a_gone_topic(suspicion: Anomaly, bounds: Mapping[StreamId, Bounds]) -> bool:
    """A topic that was created again proves nothing about the one before it; the offsets topic still does."""
    found = bounds.get(suspicion.stream)
    text = suspicion.before if isinstance(suspicion.finding.unless, EpochReaches) else suspicion.after
    if found is None or isinstance(suspicion.finding.unless, CommitCompacted) or not text.startswith("2;"):
        return False
    return found.topic_id not in ("", read(text).topic_id)
