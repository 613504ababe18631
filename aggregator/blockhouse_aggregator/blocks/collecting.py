"""One round's messages, table by table, with the counts the protocol needs of every scanned offset."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import methodcaller
from typing import Protocol

from blockhouse.schema.model import Revision, TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder, EncodedBlock
from blockhouse_aggregator.gate.messages import LettersWritten
from blockhouse_aggregator.wire.batch import Decoder
from blockhouse_aggregator.wire.filling import Evaluate
from blockhouse_aggregator.wire.formats import Format, MakeDecoder, decoder

DECODE_STEP = 4 << 20
"""Bytes of message values decoded at a time: large enough for the vectorised decoder, small enough to count rows."""
FIRST_STEP = 16 << 10
"""The first step of a block, before it is known how much larger its rows are than its messages."""
STEP_GROWTH = 16
"""How much larger than the step before a step may be: messages may change in the midst of a block."""
DECODED_STEP = 16 << 20
"""Bytes of decoded rows that one step may make."""
MAX_DECODED = 64 << 20
"""Bytes of decoded rows after which a block is full, whatever its messages take: a quarter of what a server takes as
one block, and what a worker holds of one table."""

_offset, _timestamp = methodcaller("offset"), methodcaller("timestamp")


class Message(Protocol):
    """What is used of a Kafka message (confluent_kafka.Message has it)."""

    def offset(self) -> int:
        """Its offset in the stream's log."""
        ...

    def value(self) -> bytes | None:
        """The payload; None of a tombstone."""
        ...

    def key(self) -> bytes | None:
        """The bytes of its key; None without one."""
        ...

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """(name, value) in the order in which they were sent; None without any."""
        ...

    def set_headers(self, headers: list[tuple[str, bytes | None]], /) -> None:
        """Replace them, in memory only."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """(kind, Unix milliseconds), as confluent-kafka gives it; kind 0 is without a time."""
        ...

    def leader_epoch(self) -> int | None:
        """The epoch in which the leader wrote it; None when the client does not know."""
        ...


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that goes to the dead-letter topic, and why: a CamelCase reason, and what of it is bad, for people."""

    message: Message
    reason: str
    table: str
    detail: str = ""


def counted(dead: Sequence[DeadLetter]) -> tuple[LettersWritten, ...]:
    """What is reported to the driver of dead letters, which are in any order."""
    found: dict[tuple[str, str], list[DeadLetter]] = {}
    for letter in dead:
        found.setdefault((letter.table, letter.reason), []).append(letter)
    return tuple(
        LettersWritten(
            table=table, reason=reason, count=len(letters), offset=first.message.offset(), detail=first.detail
        )
        for (table, reason), letters in sorted(found.items())
        for first in [min(letters, key=lambda letter: letter.message.offset())]
    )


@dataclass(slots=True)
class Limits:
    max_bytes: int
    max_rows: int
    max_age: float


class TableRound:
    """What one scan does with one table: take its messages into a block, or let them lag behind a cursor."""

    def __init__(self, name: str, limits: Limits, *, lowest: int, builder: BlockBuilder | None) -> None:
        self.name = name
        self.limits = limits
        self.lowest = lowest
        self.builder = builder
        self.seen = 0
        self.cursor: int | None = None
        self.waits_for: int | None = None
        self.unread: list[Message] = []
        self.size = 0
        self._decoded_size = 0
        self._row_limit_size = limits.max_bytes
        self._step = FIRST_STEP
        self._dead: dict[int, DeadLetter] = {}

    @property
    def taking(self) -> bool:
        """True while messages go into the block: a table that lags does not take what comes after its cursor."""
        return self.builder is not None and self.cursor is None

    @property
    def decoded_bytes(self) -> int:
        """What the rows decoded so far take in memory."""
        return self.builder.decoded_bytes if self.builder is not None else 0

    @property
    def full(self) -> bool:
        """The block has reached its bytes, or what its rows so far foretell."""
        return self.size >= self._row_limit_size

    def take(self, messages: Sequence[Message], values: Sequence[bytes], form: Format, *, room: int) -> int:
        """Add messages of one format until the block is full or `room` more bytes are in it; at least one. How many."""
        assert self.builder is not None
        ends = list(accumulate(map(len, values)))
        before, count = self.size, 0
        while count < len(messages) and not self.full and self.size - before < room:
            # The next size at which something happens; the message that reaches it is still taken.
            mark = min(self._decoded_size + self._step, self._row_limit_size, before + room)
            part = slice(count, bisect_left(ends, mark - before) + 1)
            taken = messages[part]
            times = [time for _, time in map(_timestamp, taken)]
            self.builder.extend(list(map(_offset, taken)), values[part], times, form)
            self.unread.extend(taken)
            count += len(taken)
            self.size = before + ends[count - 1]
            if self.size - self._decoded_size >= self._step:
                self.decode()
        return count

    def reject(self, messages: Sequence[Message], reason: str) -> int:
        """Dead-letter messages of this table without decoding them; returns how many."""
        self._dead |= {message.offset(): DeadLetter(message, reason, self.name) for message in messages}
        return len(messages)

    def lag(self, offset: int, waits_for: int | None = None) -> None:
        if self.cursor is None:
            self.cursor, self.waits_for = offset, waits_for

    def decode(self) -> None:
        """Decode what was taken since the last time, keep bad messages whole, foresee when rows reach their limit."""
        if self.builder is None or not self.unread:
            return
        rows = self.builder.decode()
        bad = {dead.offset: dead for dead in self.builder.dead}
        for message in self.unread if bad else ():
            offset = message.offset()
            if offset in bad and offset not in self._dead:
                self._dead[offset] = DeadLetter(message, bad[offset].reason, self.name, bad[offset].detail)
        self.unread.clear()
        self._decoded_size = self.size
        if rows:
            growth = max(1e-6, self.builder.decoded_bytes / max(1, self.size))
            self._step = int(max(1, min(DECODE_STEP, self._step * STEP_GROWTH, DECODED_STEP / growth)))
            self._row_limit_size = min(
                self.limits.max_bytes, int(self.size / rows * self.limits.max_rows), int(MAX_DECODED / growth)
            )

    def seal(self, hard_rows: int) -> tuple[EncodedBlock | None, tuple[DeadLetter, ...]]:
        """The block and this table's dead letters. Sets the cursor when the block had to be cut."""
        if self.builder is None:
            return None, tuple(dead for _, dead in sorted(self._dead.items()))
        self.decode()
        sealed = self.builder.seal(min(hard_rows, self.builder.most_rows))
        if sealed.cut_at is not None and (self.cursor is None or sealed.cut_at < self.cursor):
            self.cursor, self.waits_for = sealed.cut_at, None
        for dead in sealed.dead:  # found only now, such as a message with more rows than a block may hold
            assert dead.offset in self._dead, f"dead letter {dead.offset} of {self.name} lost its message"
        kept = [d for o, d in sorted(self._dead.items()) if sealed.cut_at is None or o < sealed.cut_at]
        return sealed.block, tuple(kept)


@dataclass(slots=True)
class Catalog:
    """The tables a worker knows, as the driver sent them; `evaluate` gives their blocks what only a server can, `make`
    the decoders of the next ones. The usual ones for `rows` are kept: for a small block, making one is most of the
    work."""

    tables: dict[str, TableHistory] = field(default_factory=dict)
    evaluate: Evaluate | None = None
    make: MakeDecoder = decoder
    _kept: dict[str, dict[int, Decoder]] = field(default_factory=dict)

    def learn(self, histories: tuple[TableHistory, ...]) -> None:
        """Take newer histories, whole; what was kept for a table's older one is dropped."""
        for history in histories:
            if self.tables.get(history.name) != history:
                self._kept.pop(history.name, None)
            self.tables[history.name] = history

    def builder(
        self, table: str, revision: int | None, stream: StreamId, topic_id: str = "", *, foreign: bool = False
    ) -> BlockBuilder | None:
        """A builder at `revision` (None: the current one); None when the table has no such revision."""
        history = self.tables.get(table)
        if history is None:
            return None
        found = history.current if revision is None else history.revision(revision)
        if found is None:
            return None
        return BlockBuilder(
            history, found, stream, self.evaluate, topic_id=topic_id, foreign=foreign, make=self._decoder
        )

    def _decoder(self, form: Format, table: TableHistory, revision: Revision, evaluate: Evaluate | None) -> Decoder:
        if self.make is not decoder or form is not Format.ROWS:
            return self.make(form, table, revision, evaluate)
        kept = self._kept.setdefault(table.name, {})
        if revision.number not in kept:
            kept[revision.number] = decoder(form, table, revision, evaluate)
        return kept[revision.number]

    def current_revision(self, table: str) -> int:
        """The number of the newest schema revision of `database.table`; 0 of an unknown table."""
        history = self.tables.get(table)
        return history.current.number if history and history.current else 0
