"""What a status page names for people: what a start waits for, dead letters, tables that are unsafe to load."""

from __future__ import annotations

from blockhouse.contract.base import Answer


class StartWait(Answer):
    """A part of the start that is not over yet."""

    what: str
    """Which part: `zookeeper`, `restarts`, `drain` or `catalog`."""
    since_ms: int
    """Since when, Unix milliseconds."""
    error: str
    """What the last try met; empty while the first one runs."""


class TableLetters(Answer):
    """Dead letters of one table of a stream since its owner took it over: how many, and about the last of them. Whether
    they were sent again since is not known here: `blockhouse dlq list` shows it."""

    table: str
    """`database.table`; empty: the messages name none."""
    messages: int
    """Messages that became dead letters."""
    last_ms: int
    """When the last one was written, Unix milliseconds."""
    reason: str
    """Why, one word in CamelCase."""
    offset: int
    """Its offset, or that of the first one of the same round."""
    detail: str
    """Which column, row and value was refused; empty where that is not known."""


class Hazard(Answer):
    """What makes a table unsafe to load, although it is loaded."""

    reason: str
    """One word in CamelCase."""
    text: str
    """What to do."""
