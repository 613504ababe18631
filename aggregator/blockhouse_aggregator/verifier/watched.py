"""What is remembered of a stream between two commits, and of a partition of the offsets topic between two records."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from blockhouse.contract.verifier import Coverage
from blockhouse.metadata.reading import Reading, read
from blockhouse.streams import StreamId
from blockhouse_aggregator.verifier.anomaly import Anomaly, Finding, HolesAreThere, Kind
from blockhouse_aggregator.verifier.checks.sequence import Known
from blockhouse_aggregator.verifier.checks.standing import Standing
from blockhouse_aggregator.verifier.checks.succession import holes

_AT_ONCE = 100_000
"""Offsets of one question about holes: a later one is more precise."""
OTHER_TOPICS, UNKNOWN_VERSIONS = map(Coverage.key, ("other_topics", "unknown_versions"))
"""Counts have the keys of the contract, and are remembered by them across a restart."""
NEVER = 1 << 62
"""More records than a partition can lack: after a break of the history anything may be missing."""


class Answer(Enum):
    """What the cluster answers about the excuse of a finding."""

    YES = "yes"
    NO = "no"
    NOT_NOW = "not now"
    """Ask again at the next look."""
    UNREAD = "unread"
    """More would have to be read than is allowed: it stays open for good, and is counted."""


@dataclass(slots=True)
class WatchedStream:
    """What is remembered of one stream of one group. `text` is of the last readable commit and `known` what it means;
    `offset` to `missing` are of the last commit: `missing` is what its partition lacked by then. `chosen` is where a
    tool has set the stream to start. `suspicions` wait for an answer of the cluster, `lasting` are the anomalies that
    hold now; `epoch` is the leader's epoch in which the position was last held against the log."""

    id: StreamId
    group: str
    known: Known | None = None
    text: str = ""
    offset: int = -1
    log_partition: int = -1
    log_offset: int = -1
    at_ms: int = 0
    missing: int = 0
    chosen: int | None = None
    commits: int = 0
    unseen: int = 0
    epoch: int = -1
    forgotten: bool = False
    changed: bool = False
    standing: Standing = field(default_factory=Standing)
    suspicions: list[Anomaly] = field(default_factory=list)
    lasting: dict[tuple[Kind, str | None], Anomaly] = field(default_factory=dict)

    def suspect(self, anomaly: Anomaly) -> None:
        """Keep it until the cluster has been asked. Claims of holes that follow each other become one question: every
        hole is counted once, so all of them must be there in all of the range."""
        last = self.suspicions[-1] if self.suspicions else None
        merged = _merged(last, anomaly) if last is not None else None
        self.suspicions[-1:] = [anomaly] if last is None else [merged] if merged is not None else [last, anomaly]
        self.changed = True

    @property
    def position(self) -> int | None:
        """Everything below it has been scanned; None before the first metadata that has it."""
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

    @property
    def lacks(self) -> int:
        """`missing` without what may be missing besides: the count that was seen."""
        return self.missing % NEVER

    def pass_to(self, offset: int) -> None:
        """The record at `offset` comes next: whatever lies between does not exist any more."""
        self.missing += max(0, offset - max(self.next, 0))
        self.next = offset + 1

    def reached(self, end: int) -> None:
        """The log ends at `end` now, and everything below it was read."""
        self.missing += max(0, end - max(self.next, 0))
        self.next = max(self.next, end)

    def broken(self) -> None:
        """What is read from here on does not follow what was read before, if anything was: all may be missing."""
        self.next, self.missing = -1, self.missing + NEVER


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


def _merged(one: Anomaly, next_: Anomaly) -> Anomaly | None:
    """Both claims of holes as one, unless they are of two topics, or too much to read at once."""
    a, b = one.finding.unless, next_.finding.unless
    if not (isinstance(a, HolesAreThere) and isinstance(b, HolesAreThere)):
        return None
    begin, end, count = min(a.first, b.first), max(a.end, b.end), a.count + b.count
    if end - begin > _AT_ONCE or read(one.after).topic_id != read(next_.after).topic_id:
        return None
    finding = holes(begin, end, count)
    return replace(next_, finding=finding, before=one.before)
