"""What a stream's owner commits beside the Kafka offset: the write-ahead log of one block per table.

The meaning of each field is in `docs/protocol.md`, the text it becomes in `docs/metadata.md`. Values only.
"""

from __future__ import annotations

from dataclasses import dataclass

FOREIGN = 0
"""Instead of a schema revision (they count from 1): see `InFlight`."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A block whose intent is committed and which is not known to be stored.

    `begin` and `end` are the offsets of its first and last message, `messages` how many messages it holds,
    `crc` the CRC-32 of its Native bytes, `revision` the schema revision it is encoded with and `intent_ms` when its
    intent was FIRST committed (Unix time, milliseconds): later commits carry it unchanged, so that its age is honest.

    A block inherited from another aggregator's format is *foreign*: what bytes it was sent with is not known. Its
    `revision` is FOREIGN, `crc` the revision with which it is rebuilt, `intent_ms` the oldest message in it.
    """

    begin: int
    end: int
    messages: int
    revision: int
    crc: int
    intent_ms: int

    @property
    def foreign(self) -> bool:
        return self.revision == FOREIGN

    @property
    def encoded_with(self) -> int:
        """The schema revision of its bytes."""
        return self.crc if self.foreign else self.revision


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table that is in flight, or lags, or both. A table without an entry has everything below P stored.

    `table` is the short id of the schema history. `cursor` (None unless the table lags) is where its next block may
    begin; `pending` counts the messages of the table in [cursor, P) that are in no block yet.
    """

    table: int
    in_flight: InFlight | None = None
    cursor: int | None = None
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """Message counts since the window was opened; reference + sealed + dead + holes + pending = P always holds."""

    reference: int = 0
    sealed: int = 0
    dead: int = 0
    holes: int = 0


@dataclass(frozen=True, slots=True)
class Metadata:
    """M of one stream. `tables` is sorted by table id and holds at most one entry per table."""

    replica: str
    seq: int
    intent_ms: int
    topic_id: str
    leader_epoch: int
    position: int
    window: Window
    tables: tuple[TableEntry, ...] = ()

    @property
    def pending(self) -> int:
        """Messages below P that are in no block, not dead-lettered and no hole: those of the lagging tables."""
        return sum(entry.pending for entry in self.tables)

    @property
    def committed_offset(self) -> int:
        """M.min: the Kafka offset to commit with this metadata. Everything below it is stored for good."""
        offsets = [self.position]
        for entry in self.tables:
            if entry.in_flight is not None:
                offsets.append(entry.in_flight.begin)
            if entry.cursor is not None:
                offsets.append(entry.cursor)
        return min(offsets)
