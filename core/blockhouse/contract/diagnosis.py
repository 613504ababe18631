"""What a person asks of an aggregator that does not do what is expected: what it owned, what its threads and tasks are
at, and how much it is to log."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from blockhouse.contract.base import Answer, Endpoint, ReasonedRequest, absent

Level = Literal["debug", "info", "warning", "error"]


class TakenOverBlock(Answer):
    """A block that an earlier owner had left in flight."""

    table: str
    """As database.table, or its number in the schema history when the name is not known."""
    begin: int
    """Offset of its first message."""
    end: int
    """Offset of its last message."""


class InitialBlock(Answer):
    """A block in flight, as the metadata records it."""

    begin: int
    """Offset of its first message."""
    end: int
    """Offset of its last message."""
    messages: int
    """Messages in it."""
    revision: int
    """The schema revision it is encoded with; 0: another program's block, whose bytes are not known."""
    crc: int
    """CRC-32 of its bytes; the schema revision it is built with again where `revision` is 0."""
    intent_ms: int
    """When its intent was first committed, Unix milliseconds."""


class InitialTable(Answer):
    """A table that was in flight, or lagged, or both. Of a table that has no entry everything was stored."""

    table: str
    """As database.table, or its number in the schema history when the name is not known."""
    in_flight: InitialBlock | None = Field(default=None, exclude_if=absent)
    """Its block in flight. Absent: it had none."""
    cursor: int | None = Field(default=None, exclude_if=absent)
    """Where its next block may begin. Absent: it did not lag."""
    pending: int
    """Its messages from the cursor to the position that were in no block; 0 when it did not lag."""


class InitialMetadata(Answer):
    """What was found committed beside the offset of a stream when it was taken over."""

    text: str
    """All of it as version 2 is committed: `blockhouse metadata decode` prints every table, however many there are.
    Empty: what another program left contradicts itself."""
    replica: str
    """Who committed it; empty: another program, whose metadata was turned into ours."""
    sequence: int
    """Its number."""
    intent_ms: int
    """When it was written, Unix milliseconds."""
    topic_id: str
    """Id of the topic it is about; empty: not known."""
    leader_epoch: int
    """Leader epoch of the last message that was read; -1: not known."""
    committed_offset: int
    """The Kafka offset it belongs to: everything below was stored."""
    position: int
    """The next offset to read."""
    reference: int
    """The offset at which its counts begin: from there to the position each message is in one of the four."""
    sealed: int
    """Messages in blocks."""
    dead: int
    """Dead letters."""
    holes: int
    """Offsets without a message for a table."""
    pending: int
    """Messages of tables that lagged, in no block."""
    tables: tuple[InitialTable, ...]
    """The tables that were in flight or lagged, by their number in the schema history: the first 64."""
    tables_left_out: int
    """How many more there were: `text` has them, and `replays` their blocks."""


class Ownership(Answer):
    """One time that this process owned a stream."""

    stream: str
    """As cluster/topic/partition."""
    epoch: int
    """The generation in which it was assigned."""
    began_ms: int
    """When the stream was taken over, Unix milliseconds."""
    position: int
    """The offset at which reading began."""
    sequence: int
    """Number of the metadata from which it was taken over; 0 for a stream that had none."""
    replays: tuple[TakenOverBlock, ...]
    """Blocks in that metadata, to be sent again."""
    ended_ms: int
    """When it ended, Unix milliseconds; 0 while the stream is owned."""
    why: str
    """Why it ended: `revoked`, or the reason for which the stream was taken over again. Empty while it is owned."""
    accepted: str = ""
    """The stop that a person had to accept before it could begin, who did, when and why. Absent or empty: none."""
    metadata: InitialMetadata | None = Field(default=None, exclude_if=absent)
    """What was committed when it was taken over, also when `accepted` set it aside. Absent: nothing was, or it could
    not be read, or the aggregator is of a version that does not keep it."""


class LogLevel(Answer):
    """How much is logged."""

    level: Level
    """The least severe level that is logged."""
    by: str = ""
    """Who set it last. Absent or empty: no one has since it started."""
    why: str = ""
    """Why. Absent or empty: as `by`."""


class LogLevelRequest(ReasonedRequest):
    """Log more, or less, until the process ends."""

    level: Level
    """The least severe level to log."""


class Threads(Answer):
    """Where the process is at this moment."""

    threads: dict[str, tuple[str, ...]]
    """By the name of the thread, its calls, the outermost first."""
    tasks: dict[str, tuple[str, ...]]
    """By the name of the task of the event loop, where it waits."""


_REFUSALS = {401: "The token is missing or wrong."}
HISTORY = Endpoint(
    "GET",
    "/history",
    "The last hundred times that it owned a stream, the newest last.",
    Ownership,
    many=True,
    refusals=_REFUSALS,
)
LOG_LEVEL = Endpoint("GET", "/log-level", "How much it logs.", LogLevel, refusals=_REFUSALS)
SET_LOG_LEVEL = Endpoint(
    "PUT",
    "/log-level",
    "Log more, or less, until it ends.",
    LogLevel,
    LogLevelRequest,
    refusals={400: "The body is not what is asked for.", **_REFUSALS},
)
THREADS = Endpoint("GET", "/threads", "Where its threads and tasks are.", Threads, refusals=_REFUSALS)
ENDPOINTS = (HISTORY, LOG_LEVEL, SET_LOG_LEVEL, THREADS)
