"""What can happen to a stream (events) and what its owner must then do (effects). Frozen values only.

Effects are a list in order; a crash may cut it at every index, and every prefix must be safe.
"""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse.metadata.model import InFlight, Metadata


@dataclass(frozen=True, slots=True)
class SealedBlock:
    """A block a worker built: see `InFlight`; `revision` and `crc` belong to its Native bytes."""

    begin: int
    end: int
    messages: int
    revision: int
    crc: int


@dataclass(frozen=True, slots=True)
class TableScan:
    """What a scan found of one table.

    `seen` counts its messages at or above the position before the scan, `dead` those dead-lettered (acknowledged by the
    broker) in the scanned range, `cursor` the first offset that is in no block although it was scanned (None: none).
    """

    table: int
    seen: int
    block: SealedBlock | None = None
    dead: int = 0
    cursor: int | None = None


@dataclass(frozen=True, slots=True)
class ScanReport:
    """A scan of [start, stop). `headless` counts messages at or above the position before the scan that were
    dead-lettered because they name no table; `leader_epoch` is that of `stop` (-1: not known)."""

    start: int
    stop: int
    tables: tuple[TableScan, ...]
    headless: int = 0
    leader_epoch: int = -1


# --- events -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scanned:
    """A worker sealed a round, as in `report`; `resumed` are the lagging tables the scan had to take up."""

    report: ScanReport
    resumed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class CommitSucceeded:
    """The broker applied the commit of this number."""

    seq: int


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """The broker certainly did not apply it."""

    seq: int
    reason: str


@dataclass(frozen=True, slots=True)
class CommitUnknown:
    """Timed out: it may or may not have been, or still be, applied."""

    seq: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The block is stored for good: acknowledged by the rule for its kind (see `docs/protocol.md`)."""

    table: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class InsertFailed:
    """The insert of the block failed or its worker died: fate unknown, bytes gone."""

    table: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A worker rebuilt an in-flight block from the log."""

    table: int
    block: SealedBlock


@dataclass(frozen=True, slots=True)
class Condemned:
    """It was found that the table's in-flight block can never be inserted as it is."""

    table: int
    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """What the table's block was blocked for may be gone: it is replayed once more."""

    table: int


@dataclass(frozen=True, slots=True)
class Recut:
    """The bounds of the stalled block [begin, end] were abandoned, after it was proved that no row of it is stored
    and none can come any more: its messages are cut again. So are `dead` others from its begin on, dead-lettered when
    it was cut: they were counted then, and will be again."""

    table: int
    begin: int
    end: int
    dead: int = 0


@dataclass(frozen=True, slots=True)
class Flush:
    """Time to record what changed since the last commit; with `close_window` also to close the window if possible."""

    close_window: bool = False


Event = (
    Scanned
    | CommitSucceeded
    | CommitRefused
    | CommitUnknown
    | Stored
    | InsertFailed
    | Rebuilt
    | Condemned
    | Released
    | Recut
    | Flush
)


# --- effects ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit `offset` with `metadata`, by the thread that owns the consumer, only in `epoch`."""

    offset: int
    metadata: Metadata
    epoch: int


@dataclass(frozen=True, slots=True)
class Insert:
    """Grant the insert of exactly this block. A fresh block is acknowledged by the server's plain "ok"; any other needs
    the window check before and the quorum check after."""

    table: int
    intent: InFlight
    fresh: bool


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The fate of a commit is unknown: leave the group and come back under a new member id before reading anything."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Forget this state and read the committed metadata again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something a person must know; `reason` is CamelCase and has a page in the runbook."""

    reason: str
    message: str
    table: int | None = None


Effect = Commit | Insert | Rejoin | Rebuild | Alarm
