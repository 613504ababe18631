"""What is waited for, reported while it lasts: on a terminal and off one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

EVERY = 10.0
"""Seconds between two lines."""


class Waiting:
    """An `async with` block for a wait of at most `most` seconds until `what`; `report` gets a line every `every`
    seconds. `why` is why it lasts, where that is known."""

    def __init__(self, what: str, most: float, report: Callable[[str], None], *, every: float = EVERY) -> None:
        self.why = ""
        self._what = what
        self._most = most
        self._report = report
        self._every = every

    async def __aenter__(self) -> Self:
        self._lines = asyncio.create_task(self._report_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.cancel()

    async def _report_on(self) -> None:
        clock = asyncio.get_running_loop().time
        begun = clock()
        while True:
            await asyncio.sleep(self._every)
            why = f": {self.why}" if self.why else ""
            lasts = f"{clock() - begun:.0f} s, at most {self._most:g} s"
            self._report(f"waiting until {self._what} ({lasts}){why}")
