"""What a person asks of an aggregator that does not do what is expected: what it owned, what its threads and tasks are
at, and how much it is to log."""

from __future__ import annotations

from typing import Literal

from blockhouse.contract.base import Answer, Endpoint, Request

Level = Literal["debug", "info", "warning", "error"]


class TakenOverBlock(Answer):
    """A block that an earlier owner had left in flight."""

    table: str
    """As database.table, or its number in the schema history when the name is not known."""
    begin: int
    """Offset of its first message."""
    end: int
    """Offset of its last message."""


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


class LogLevel(Answer):
    """How much is logged."""

    level: Level
    """The least severe level that is logged."""


class LogLevelRequest(Request):
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
