"""A survey of the log for taking over a stream from eBay's aggregator: which messages of which table lie where.

The only place where the driver reads messages: once per stream, a few blocks' worth, outside of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from blockhouse_aggregator.blocks.collecting import Message
from blockhouse_aggregator.blocks.routing import Router
from blockhouse_aggregator.kafka.headers import headers_of

READ_SECONDS = 1.0
BATCH = 1000


class Reader(Protocol):
    """`kafka.fetch.StreamReader`, positioned at the start."""

    @property
    def position(self) -> int: ...
    def read(self, max_messages: int, timeout: float) -> Sequence[Message]:
        """As `blocks.scan.Reader.read`."""
        ...


@dataclass(slots=True)
class TableCount:
    """`protocol.foreign.Surveyed`, by table name."""

    stored: int = 0
    inside: int = 0
    beyond: int = 0
    first_beyond: int | None = None
    oldest_ms: int | None = None

    def add(self, message: Message, begin: int, end: int) -> None:
        """One message more, of a table whose committed range is [begin, end]."""
        offset = message.offset()
        if offset < begin:
            self.stored += 1
        elif offset <= end:
            self.inside += 1
            stamp = message.timestamp()[1]
            self.oldest_ms = stamp if self.oldest_ms is None else min(self.oldest_ms, stamp)
        else:
            self.beyond += 1
            if self.first_beyond is None:
                self.first_beyond = offset


def count_messages(
    reader: Reader, router: Router, ranges: Mapping[str, tuple[int, int]], start: int, stop: int
) -> dict[str, TableCount]:
    """Count the messages of [start, stop) by table. `ranges` are the committed (begin, end) of each named table; of any
    other table nothing was read before. Raises what the reader raises."""
    counts: dict[str, TableCount] = {}
    for message in _messages(reader, stop):
        table = router.route(headers_of(message)).table
        if table:
            counts.setdefault(table, TableCount()).add(message, *ranges.get(table, (start, start - 1)))
    return counts


def _messages(reader: Reader, stop: int) -> Iterable[Message]:
    while reader.position < stop:
        for message in reader.read(BATCH, READ_SECONDS):
            if message.offset() >= stop:
                return
            yield message
