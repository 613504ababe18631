"""Whether this aggregator is in its consumer groups: it stays out while there is a reason to, be it a local replica
that takes no rows, a secret that is gone or people who suspended the pipeline.

Leaving never waits for what is in flight: the next owner replays it. Nothing here may commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)
PERIOD = 1.0
"""Seconds between two reads of the file."""


class Membership:
    """Joins and leaves all groups: present when no reason to stay out is left."""

    def __init__(self, move: Callable[[bool], Awaitable[None]]) -> None:
        """`move(True)` joins, `move(False)` leaves; each is called only when the presence changes."""
        self._move = move
        self._reasons: set[str] = set()
        self._present = False
        self._begun = False
        self._ended = False
        self._mutex = asyncio.Lock()

    def why_out(self, texts: Mapping[str, str]) -> str:
        """The reasons to stay out; empty: it is in all groups. `texts` are what people are shown of a reason."""
        return "; ".join(f"{each}: {texts[each]}" if texts.get(each) else each for each in sorted(self._reasons))

    async def begin(self) -> None:
        """Join, unless a reason to stay out was given already."""
        self._begun = True
        await self._follow()

    def end(self) -> None:
        """Never join again, whatever reason to stay out ends: the members are about to be closed."""
        self._ended = True

    async def stay_out(self, reason: str, out: bool) -> None:
        """Add or remove a reason to stay out of the group."""
        if out:
            self._reasons.add(reason)
        else:
            self._reasons.discard(reason)
        await self._follow()

    async def _follow(self) -> None:
        async with self._mutex:  # reasons come and go while the client moves
            while self._begun and self._present == bool(self._reasons):
                if self._ended and not self._reasons:
                    return
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
        """Read the file once; blocking. Raises nothing: an unreadable file is logged and changes nothing."""
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
        reported: bool | None = None
        while True:
            self.look()
            if self.suspended != reported:
                reported = self.suspended
                await on_change(reported)
            await asyncio.sleep(PERIOD)
