"""Events of several logs in the order of their times, although each log's clock is its own.

For reports only: a verdict that needed this order would be as good as the clocks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TypeVar

Event = TypeVar("Event")


def merge(events: Iterable[tuple[int, Event]], skew_ms: int) -> Iterator[tuple[int, Event]]:
    """`events` are (Unix milliseconds, event) as they are read, log by log in turns. One is let out when another is
    `skew_ms` younger, so that two whose times are wrong by less are never exchanged by the reading."""
    heap: list[tuple[int, int, Event]] = []
    newest = -1
    for number, (at_ms, event) in enumerate(events):
        heapq.heappush(heap, (at_ms, number, event))
        newest = max(newest, at_ms)
        while heap and heap[0][0] < newest - skew_ms:
            at, _, first = heapq.heappop(heap)
            yield at, first
    while heap:
        at, _, first = heapq.heappop(heap)
        yield at, first
