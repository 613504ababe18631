"""Is the local replica fit to take rows? If not for long enough, the streams go to another replica until it is.

A fault of the whole shard (no quorum anywhere) hands nothing over: no other replica would do better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from blockhouse.errors import BlockhouseError
from blockhouse_aggregator.runtime.clock import loop_time

log = structlog.get_logger(__name__)
PERIOD = 2.0
REPORT_HOLDS = 15.0
"""Seconds for which a fault that an insert met counts: longer than the pause between two tries, so that it lasts as
long as inserts fail. A block that is stored ends it at once."""


SILENT = 4.0
"""Seconds without an answer after which people are shown that it is silent; it is unfit when the question times out."""


class ReplicaHealth:
    """Watches the replica; `unfit` is why it cannot take rows, empty while it can."""

    def __init__(self, check: Callable[[], Awaitable[str]], handover_after: float) -> None:
        self._check = check
        self._after = handover_after
        self._reported = ""
        self._reported_at = 0.0
        self._since: float | None = None
        self._asked: float | None = None
        self.unfit = ""

    def report(self, fault: str, message: str) -> None:
        """An insert met a fault (empty: it was stored); only those of the replica itself count."""
        if fault == "replica":
            self._reported, self._reported_at = message, loop_time()
        elif not fault:
            self._reported = ""

    async def look(self) -> None:
        """Ask the replica once and remember its problem: the text of a BlockhouseError is one."""
        now = self._asked = loop_time()
        try:
            found = await self._check()
        except BlockhouseError as error:
            found = str(error)
        finally:
            self._asked = None
        if now - self._reported_at > REPORT_HOLDS:
            self._reported = ""
        found = found or self._reported
        if found and self._since is None:
            self._since = now
            log.warning("replica.unfit", why=found)
        elif not found and self._since is not None:
            self._since = None
            log.info("replica.fit")
        self.unfit = found

    @property
    def problem(self) -> str:
        """Why the replica takes no rows, for people: also that it has not answered for a while. Empty: none known."""
        silence = loop_time() - self._asked if self._asked is not None else 0.0
        if not self.unfit and silence > SILENT:
            return f"the replica has not answered for {silence:.0f} s"
        return self.unfit

    @property
    def hand_over(self) -> bool:
        """True when the fault has lasted so long that another replica should take the streams."""
        return self._since is not None and loop_time() - self._since > self._after

    async def watch(self, on_change: Callable[[bool], Awaitable[None]]) -> None:
        """Call `on_change(hand_over)` whenever the answer changes."""
        handed = False
        while True:
            await self.look()
            if self.hand_over != handed:
                handed = not handed
                await on_change(handed)
            await asyncio.sleep(PERIOD)
