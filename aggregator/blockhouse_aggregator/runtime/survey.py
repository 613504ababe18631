"""A look at the log for taking over a stream from eBay's aggregator: which messages of which table lie where.

The only place where the driver reads messages: once per stream, a few blocks' worth, outside of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from blockhouse_aggregator.blocks.collecting import Message
from blockhouse_aggregator.blocks.routing import Router

READ_SECONDS = 1.0
BATCH = 1000


class Reader(Protocol):
    """`kafka.fetch.StreamReader`, positioned at the start."""

    @property
    def position(self) -> int: ...
    def read(self, max_messages: int, timeout: float) -> Sequence[Message]: ...


@dataclass(slots=True)
class TableCount:
    """`protocol.foreign.Surveyed`, by table name."""

    stored: int = 0
    inside: int = 0
    beyond: int = 0
    first_beyond: int | None = None
    oldest_ms: int | None = None


def count_messages(
    reader: Reader, router: Router, ranges: Mapping[str, tuple[int, int]], start: int, stop: int
) -> dict[str, TableCount]:
    """Count the messages of [start, stop) by table. `ranges` are the committed (begin, end) of each named table; of any
    other table nothing was read before. Raises what the reader raises."""
    counts: dict[str, TableCount] = {}
    for message in _messages(reader, stop):
        table = router.route(message.headers()).table
        if table:
            _count(counts.setdefault(table, TableCount()), message, *ranges.get(table, (start, start - 1)))
    return counts


def _count(count: TableCount, message: Message, begin: int, end: int) -> None:
    offset = message.offset()
    if offset < begin:
        count.stored += 1
    elif offset <= end:
        count.inside += 1
        stamp = message.timestamp()[1]
        count.oldest_ms = stamp if count.oldest_ms is None else min(count.oldest_ms, stamp)
    else:
        count.beyond += 1
        if count.first_beyond is None:
            count.first_beyond = offset


def _messages(reader: Reader, stop: int) -> Iterable[Message]:
    while reader.position < stop:
        for message in reader.read(BATCH, READ_SECONDS):
            if message.offset() >= stop:
                return
            yield message
