"""Secrets and certificates may vanish under a running aggregator, which then works until one of its clients connects
again: in the midst of a lease, after a broker's restart. It gives its streams to others before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from blockhouse.config.files import files_of, unreadable
from blockhouse.config.pipeline import AggregatorConfig

PERIOD = 2.0
"""Seconds between two looks. Only what two looks in a row have found counts: a file that is written again is gone for a
moment."""


class ConfiguredFiles:
    """Watches the files of a configuration; `problem` is which of them cannot be read and why, empty while all can."""

    def __init__(self, config: AggregatorConfig) -> None:
        self._config = config
        self.problem = ""

    async def watch(self, on_change: Callable[[bool], Awaitable[None]]) -> None:
        """Call `on_change(missing)` whenever the answer changes; returns at once when there is no file to watch."""
        before = ""
        while any(files_of(self._config)):
            found = await asyncio.to_thread(unreadable, self._config)  # a file system that hangs must not stop the loop
            missing = bool(found and before)
            before = found
            if missing != bool(self.problem):
                self.problem = found if missing else ""
                await on_change(missing)
            await asyncio.sleep(PERIOD)
