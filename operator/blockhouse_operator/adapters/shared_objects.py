"""Secrets and ConfigMaps that all shards of a pipeline need: read once for all that ask within some seconds.

One that is missing is asked for again each time, so that a shard that waits for it sees it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from blockhouse_operator.adapters.kinds import Kind, Object

MAX_AGE = 30.0
"""Seconds that what was read may be old at most: less than a kubelet may take to bring it into a pod."""


class Objects(Protocol):
    """Where one object is read."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None: ...


class SharedObjects:
    """On one loop; raises what `source` raises. No caller may change what it gets.

    `resync` is how often, in seconds, each shard asks: what was read counts for half of it, and for MAX_AGE at most.
    """

    def __init__(self, source: Objects, clock: Callable[[], float], resync: float) -> None:
        self._source = source
        self._clock = clock
        self._age = min(resync / 2, MAX_AGE)
        self._known: dict[tuple[str, str, str], tuple[float, asyncio.Task[Object | None]]] = {}

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object; None when it does not exist."""
        place, now = (kind.name, namespace, name), self._clock()
        self._known = {
            other: (since, reading)
            for other, (since, reading) in self._known.items()
            if now - since < self._age and not _failed(reading)
        }
        if place not in self._known:
            self._known[place] = (now, asyncio.create_task(self._source.get(kind, namespace, name)))
        # A reconcile that is cancelled must not end what others wait for.
        return await asyncio.shield(self._known[place][1])


def _failed(reading: asyncio.Task[Object | None]) -> bool:
    return reading.done() and (reading.cancelled() or reading.exception() is not None or reading.result() is None)
