"""What the owner of a stream knows. Values only; `step` makes the next one.

The state is the metadata plus what must not survive the owner: how far each in-flight block has come.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window


class Stage(Enum):
    """How far an in-flight block has come under this owner."""

    SEALED = "sealed"
    """Built by us; its intent is not committed yet, so it must not be inserted (I1)."""
    INSERTING = "inserting"
    """Its intent is committed and the worker that holds its bytes may insert it."""
    REPLAY = "replay"
    """Its intent is committed but no task holds its bytes: it must be rebuilt exactly before it is inserted."""
    BLOCKED = "blocked"
    """It must not be inserted until a person decides; the table's later messages lag behind it."""


@dataclass(frozen=True, slots=True)
class Block:
    """An in-flight block. `fresh` while no insert of it can have happened before the one we grant:
    only then does a plain "ok" of the server acknowledge it. `reason` is why it is, or last was, blocked."""

    intent: InFlight
    stage: Stage
    fresh: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table that is in flight or lags. `cursor` and `pending` as in `TableEntry`."""

    table: int
    block: Block | None = None
    cursor: int | None = None
    pending: int = 0

    @property
    def idle(self) -> bool:
        """True when nothing of the table is open: such a table has no entry."""
        return self.block is None and self.cursor is None


@dataclass(frozen=True, slots=True)
class StreamState:
    """One stream under one owner in one epoch.

    `seq` is the number of the metadata last read or written, `committing` the one on its way (None when none is),
    `recorded` what the broker holds for certain (None before the first commit of a new stream) and `window_opened_ms`
    when the counts of `window` began, for the forced flush only. `confirmed` once a commit of this owner has succeeded:
    reading metadata proves nothing, for an owner that has lost the stream can still read; committing does.
    """

    replica: str
    epoch: int
    topic_id: str
    leader_epoch: int
    seq: int
    position: int
    window: Window
    window_opened_ms: int
    tables: tuple[TableState, ...] = ()
    recorded: Metadata | None = None
    committing: Metadata | None = None
    confirmed: bool = False
    closed: bool = False

    def table(self, table: int) -> TableState:
        """The table's state; an idle one when it has no entry."""
        return next((t for t in self.tables if t.table == table), TableState(table))

    def with_table(self, changed: TableState) -> StreamState:
        """The state with one table replaced; an idle table loses its entry."""
        others = tuple(t for t in self.tables if t.table != changed.table)
        tables = others if changed.idle else tuple(sorted((*others, changed), key=lambda t: t.table))
        return replace(self, tables=tables)

    @property
    def pending(self) -> int:
        return sum(t.pending for t in self.tables)

    @property
    def in_flight(self) -> tuple[TableState, ...]:
        return tuple(t for t in self.tables if t.block is not None)

    @property
    def replaying(self) -> bool:
        """True until the last inherited block is acknowledged (`REPLAY` in the status, else `CONSUME`)."""
        return any(t.block is not None and not t.block.fresh for t in self.tables)


def metadata_of(state: StreamState, now_ms: int) -> Metadata:
    """The metadata that records `state`: the next one in sequence, and the only place where one is built."""
    entries = tuple(TableEntry(t.table, t.block.intent if t.block else None, t.cursor, t.pending) for t in state.tables)
    return Metadata(
        replica=state.replica,
        seq=state.seq + 1,
        intent_ms=now_ms,
        topic_id=state.topic_id,
        leader_epoch=state.leader_epoch,
        position=state.position,
        window=state.window,
        tables=entries,
    )


def same_log(first: Metadata | None, second: Metadata) -> bool:
    """True when `second` records nothing that `first` does not: only its number, time or writer differ."""
    if first is None:
        return False
    return (first.position, first.window, first.tables, first.leader_epoch) == (
        second.position,
        second.window,
        second.tables,
        second.leader_epoch,
    )
