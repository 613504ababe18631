"""Parts that wait for their quorum, observed once per ZooKeeper ensemble for all shards of all pipelines.

Thousands of shards must not have a conversation with an ensemble each, one after the other. The first that asks has all
tables read that any shard has asked about; those that ask meanwhile wait for the same answer, the next ones find it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.ensemble import Ensemble

TROUBLE_LASTS_SECONDS = 5.0
"""How long it counts that a part waits: most do for a moment."""
FORGOTTEN_SECONDS = 600.0
"""A table that no shard asked about for so long is not read any more."""

Ask = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
"""Sends a request to the ensemble, as `Troubles.ask` does."""


class EnsembleQuorums:
    """Of one ensemble; on one loop. An observation counts for `seconds`, by `clock`."""

    def __init__(self, ensemble: Ensemble, clock: Callable[[], float], seconds: float) -> None:
        self._ensemble = ensemble
        self._clock = clock
        self._seconds = seconds
        self._asked: dict[str, float] = {}
        self._read: dict[str, float] = {}
        """When each path was read."""
        self._waiting: dict[str, float] = {}
        """By path, since when a part waits."""
        self._whole_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    async def waits(self, root: str, paths: Mapping[str, str], ask: Ask) -> dict[str, float]:
        """Seconds for which a part has waited for its quorum, by name of the table, where one waits; `paths` are the
        tables' own nodes, `root` the pipeline's. Raises Retryable where the ensemble does not answer."""
        now = self._clock()
        self._asked |= dict.fromkeys(paths.values(), now)
        while not self._known(paths):
            looking = self._looking
            if looking is None or looking.done():
                looking = self._looking = asyncio.create_task(self._look(root, ask))
            # A reconcile that is cancelled must not end what others wait for.
            await asyncio.shield(looking)
        now = self._clock()
        return {table: now - self._waiting[path] for table, path in paths.items() if path in self._waiting}

    def _known(self, paths: Mapping[str, str]) -> bool:
        now = self._clock()
        return now - self._whole_at < self._seconds and all(
            path in self._read and (path not in self._waiting or now - self._read[path] < TROUBLE_LASTS_SECONDS)
            for path in paths.values()
        )

    async def _look(self, root: str, ask: Ask) -> None:
        now = self._clock()
        self._asked = {path: at for path, at in self._asked.items() if now - at < FORGOTTEN_SECONDS}
        whole = now - self._whole_at >= self._seconds
        due = [path for path in self._asked if whole or path not in self._read or path in self._waiting]
        found: Mapping[str, float] = {}

        async def read() -> None:
            nonlocal found
            found = await asyncio.to_thread(self._ensemble.quorum_waits, root, {path: path for path in due})

        try:
            await ask(read)
        except Retryable:
            self._whole_at = float("-inf")  # what was seen before proves nothing any more
            raise
        now = self._clock()
        self._read = ({} if whole else self._read) | dict.fromkeys(due, now)
        self._waiting = {path: at for path, at in self._waiting.items() if path not in due and path in self._read}
        self._waiting |= {path: now - seconds for path, seconds in found.items()}
        if whole:
            self._whole_at = now
