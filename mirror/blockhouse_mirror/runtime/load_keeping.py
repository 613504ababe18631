"""Lets the history of load outlive a driver. Nothing waits for it for long: without it rates are measured again."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

import structlog

from blockhouse.errors import BlockhouseError
from blockhouse.load.columns import Column
from blockhouse.load.kept import KeptHistory
from blockhouse_mirror.runtime.clock import boot_time
from blockhouse_mirror.runtime.mirrored import Mirrored

log = structlog.get_logger(__name__)
INTERVAL = 30.0
"""Seconds between two writings: so much of the load is lost with a driver at most."""
HISTORY = "history"
"""The key of its errors."""


class Store(Protocol):
    """Where columns are kept. Blocking; raises Retryable or Permanent."""

    def read(self) -> list[Column]: ...

    def write(self, columns: list[Column]) -> None: ...


class LoadKeeping:
    """Of one driver. With no store the history lives and ends with it."""

    def __init__(self, mirrored: Mirrored, history: KeptHistory, store: Store | None) -> None:
        self._mirrored, self._history, self._store = mirrored, history, store
        self._written_at = -INTERVAL
        self._unwritten: dict[tuple[int, int], Column] = {}

    async def restore(self, cluster: str) -> None:
        """Take over what former drivers kept of the load of this cluster."""
        if self._store is None:
            return
        try:
            found = await asyncio.to_thread(self._store.read)
        except BlockhouseError as error:
            self._mirrored.failed(HISTORY, error)
            return
        columns = self._history.restore(found, cluster, time.time())
        log.info("mirror.load_restored", columns=columns, partitions=len(self._history))

    async def keep(self, *, last: bool = False) -> None:
        """Write what changed, at most every INTERVAL but for the `last` time."""
        if self._store is None or (boot_time() - self._written_at < INTERVAL and not last):
            return
        self._written_at = boot_time()
        for column in self._history.changed():
            self._unwritten[column.span, column.slot] = column
        try:
            await asyncio.to_thread(self._store.write, list(self._unwritten.values()))
        except BlockhouseError as error:
            self._mirrored.failed(HISTORY, error)
            return
        self._unwritten.clear()
        self._mirrored.worked(HISTORY)
