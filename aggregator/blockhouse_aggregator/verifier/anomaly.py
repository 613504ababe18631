"""What a verifier can find wrong, as values. `docs/verifier.md` has what each kind proves and what it cannot prove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from blockhouse.contract.verifier import AnomalyReport
from blockhouse.streams import StreamId


class Kind(StrEnum):
    """What rule a commit breaks, and whether rows may be lost or doubled by it."""

    BACKWARD = "backward"
    """Position, reference, a cursor or a block lies before what was recorded already: rows may be doubled."""
    OVERLAP = "overlap"
    """A block shares offsets with what is stored or in flight and is not that very block: rows may be doubled."""
    GAP = "gap"
    """Messages were passed over that are in no block, not pending, not dead-lettered and no hole: rows may be lost."""
    FOREIGN = "foreign"
    """A process that does not keep the protocol committed for the stream."""
    ORDER = "order"
    """Numbers of the metadata do not follow each other: a commit was lost, or written twice."""
    INTERLEAVED = "interleaved"
    """Two owners wrote the same number: one of them did not own the stream."""
    RESTART = "restart"
    """The stream was started afresh although it had been started before: what was in flight is forgotten."""
    RECUT = "recut"
    """A block in flight was abandoned and its messages are loaded again: doubled, if any row of it was stored."""
    BEYOND_END = "beyond-end"
    """The position lies beyond the log: the log was truncated, or the commit was never derived from it."""
    STALLED = "stalled"
    """The log grows and the stream does not move, or a table stands still."""
    UNREADABLE = "unreadable"
    """The metadata cannot be read: no aggregator would continue from it."""
    TRUNCATED = "truncated"
    """The log was cut below what had been read from it and written again: other messages stand there now."""
    OTHER_TOPIC = "other-topic"
    """The cluster has another topic of that name, which holds messages, and the stream still records the old one."""


LASTING = frozenset({Kind.BEYOND_END, Kind.STALLED, Kind.OTHER_TOPIC})
"""Kinds that describe how things are, not what happened: they end when it is over."""


@dataclass(frozen=True, slots=True)
class LogBegins:
    """The stream's log begins at `at` or later: retention has taken the messages."""

    at: int


@dataclass(frozen=True, slots=True)
class HolesAreThere:
    """The offsets [`first`, `end`) of the stream's log hold at least `count` that no reader gets a message from."""

    first: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class EpochReaches:
    """In the log as it is now, leader epoch `epoch` reaches up to `position` at least."""

    epoch: int
    position: int


@dataclass(frozen=True, slots=True)
class CommitCompacted:
    """The commit before, at this offset of the offsets topic, is gone.

    The cleaner leaves one commit per stream of all that it has been through, the last: while an earlier one is still
    there, it has taken none that followed it, and what is missing behind it is missing for another reason.
    """

    partition: int
    offset: int


Excuse = LogBegins | HolesAreThere | EpochReaches | CommitCompacted
"""What would explain a finding, and what only the cluster can answer."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with one commit. `first` and `last` are the stream's offsets it is about; None: of no offset.

    With `unless` it is a suspicion: nothing is wrong if the cluster confirms it.
    """

    kind: Kind
    message: str
    table: str | None = None
    first: int | None = None
    last: int | None = None
    unless: Excuse | None = None


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A finding about a stream, with the evidence: both texts, and where in `__consumer_offsets` the later one is.

    `at_ms` is the broker's time of that commit, `found_ms` ours; `ended_ms` is when a lasting one was over.
    """

    finding: Finding
    stream: StreamId
    group: str
    before: str
    after: str
    log_partition: int
    log_offset: int
    at_ms: int
    found_ms: int
    ended_ms: int | None = None

    @property
    def id(self) -> str:
        """The same however often the history is read."""
        table = f":{self.finding.table}" if self.finding.table else ""
        where = f"{self.group}:{self.stream}@{self.log_partition}:{self.log_offset}"
        return f"{where}:{self.finding.kind}{table}"

    def report(self, names: Mapping[str, str] | None = None) -> AnomalyReport:
        """As `GET /anomalies` and the log show it; `names` gives tables their names by id."""
        finding = self.finding
        table = (names or {}).get(finding.table, finding.table) if finding.table else None
        return AnomalyReport(
            id=self.id,
            kind=str(finding.kind),
            message=finding.message,
            stream=str(self.stream),
            cluster=self.stream.cluster,
            group=self.group,
            table=table,
            first=finding.first,
            last=finding.last,
            before=self.before,
            after=self.after,
            at=iso(self.at_ms),
            found=iso(self.found_ms),
            ended=iso_or_none(self.ended_ms),
            log_partition=self.log_partition,
            log_offset=self.log_offset,
        )


def iso(at_ms: int) -> str:
    """Unix milliseconds as UTC, to the millisecond."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_or_none(at_ms: int | None) -> str | None:
    """The same of what may not have been yet."""
    return None if at_ms is None else iso(at_ms)
