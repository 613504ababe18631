"""A survey of the log for taking over a stream from eBay's aggregator: which messages of which table lie where.

The only place where the driver reads messages: once per stream, a few blocks' worth, outside of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from blockhouse_aggregator.blocks.collecting import Message
from blockhouse_aggregator.blocks.routing import Router
from blockhouse_aggregator.kafka.headers import headers_of
from blockhouse_aggregator.runtime.ports import TableCount

READ_SECONDS = 1.0
BATCH = 1000


class Reader(Protocol):
    """`kafka.fetch.StreamReader`, positioned at the start."""

    @property
    def position(self) -> int: ...
    def read(self, max_messages: int, timeout: float) -> Sequence[Message]:
        """As `blocks.scan.Reader.read`."""
        ...


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
