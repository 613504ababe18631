"""Whether this aggregator is in its consumer groups: away while anything keeps it away, be it a local replica that
takes no rows or people who suspended the pipeline.

Going away never waits for what is in flight: whoever owns the stream next replays it. Nothing here may commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)
PERIOD = 1.0
"""Seconds between two looks at the file."""


class Presence:
    """Joins and leaves all groups: present when no reason is left to be away."""

    def __init__(self, move: Callable[[bool], Awaitable[None]]) -> None:
        """`move(True)` joins, `move(False)` leaves; each is called only when the presence changes."""
        self._move = move
        self._reasons: set[str] = set()
        self._present = False
        self._begun = False
        self._turn = asyncio.Lock()

    async def begin(self) -> None:
        """Join, unless a reason to be away was given already."""
        self._begun = True
        await self._follow()

    async def keep_away(self, reason: str, away: bool) -> None:
        """Let `reason` count, or count no more."""
        if away:
            self._reasons.add(reason)
        else:
            self._reasons.discard(reason)
        await self._follow()

    async def _follow(self) -> None:
        async with self._turn:  # reasons come and go while the client moves
            while self._begun and self._present == bool(self._reasons):
                self._present = not self._reasons
                log.info("groups.join" if self._present else "groups.leave", reasons=sorted(self._reasons))
                await self._move(self._present)


class Suspension:
    """The file by which a pipeline is suspended without a restart: `true` suspends, anything else does not.

    Without a file nothing is ever suspended. One that cannot be read changes nothing.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.suspended = False
        self.look()

    def look(self) -> None:
        if self._file is None:
            return
        try:
            self.suspended = self._file.read_text(encoding="utf-8").strip() == "true"
        except FileNotFoundError:
            self.suspended = False
        except (OSError, UnicodeDecodeError) as error:
            log.warning("suspension.unreadable", file=str(self._file), error=str(error))

    async def watch(self, on_change: Callable[[bool], Awaitable[None]]) -> None:
        """Call `on_change(suspended)` now and whenever the answer changes."""
        told: bool | None = None
        while True:
            self.look()
            if self.suspended != told:
                told = self.suspended
                await on_change(told)
            await asyncio.sleep(PERIOD)
