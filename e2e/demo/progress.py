"""What is to be seen while it runs: a live table on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from e2e.kit.load import Load
from e2e.kit.watch import Seen, Watcher
from e2e.stack.periodic import Periodic

LINE_EVERY = 5.0
RATE_OVER = 5.0
"""Seconds over which rates are taken."""
_COLOURS = {"ready": "green", "starting": "yellow", "frozen": "cyan", "down": "red"}


class Reporter:
    """Prints what happens, with the seconds since the beginning."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def log(self, text: str, style: str = "") -> None:
        self.console.print(Text(f"{self.seconds:6.1f} s  "), Text(text, style), sep="", soft_wrap=True)


class Rate:
    """How fast a count grows, over the last seconds."""

    def __init__(self, over: float = RATE_OVER) -> None:
        self._over = over
        self._points: deque[tuple[float, int]] = deque()

    def per_second(self, now: float, count: int) -> float:
        """Note the count at `now` (seconds) and return its growth per second."""
        self._points.append((now, count))
        while len(self._points) > 2 and self._points[1][0] <= now - self._over:
            self._points.popleft()
        (begin, first), (end, last) = self._points[0], self._points[-1]
        return max(0.0, (last - first) / (end - begin)) if end > begin else 0.0


class Figures:
    """The numbers of one moment, from what watcher and load know.

    Acknowledged rows are as aggregators report: a replayed block is acknowledged again, so they may exceed the rows
    produced. What is stored, the audit counts.
    """

    def __init__(self, watcher: Watcher, load: Load) -> None:
        self._watcher = watcher
        self._load = load
        self._produced, self._stored = Rate(), Rate()

    def line(self) -> str:
        """Rows and rates of the whole pipeline, and each aggregator in a few words."""
        seen = self._watcher.latest
        return f"{self.totals()}; " + "; ".join(f"{s.replica} {brief(s)}" for s in seen)

    def totals(self) -> str:
        now, rows = time.monotonic(), self._load.rows
        stored = self._watcher.tally.total("rows")
        lag = sum(s.lag for s in self._watcher.latest)
        waiting = sorted(frozenset[str]().union(*(s.waiting_tables for s in self._watcher.latest)))
        text = (
            f"produced {rows:,} rows ({self._produced.per_second(now, rows):,.0f}/s), "
            f"acknowledged {stored:,} ({self._stored.per_second(now, stored):,.0f}/s), lag {lag:,} messages"
        )
        return text + (f", waiting: {', '.join(waiting)}" if waiting else "")

    def grid(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("aggregator", "condition", "streams", "lag", "in flight", "rows", "replayed", "deduplicated"):
            table.add_column(name, justify="right" if name in ("lag", "rows", "replayed", "deduplicated") else "left")
        tally = self._watcher.tally
        for s in self._watcher.latest:
            counts = (tally.total(name, s.replica) for name in ("rows", "replays", "deduplicated"))
            table.add_row(
                s.replica,
                Text(s.condition, _COLOURS[s.condition]),
                _counts(s.streams.values()),
                f"{s.lag:,}",
                _counts(block.stage for block in s.in_flight),
                *(f"{count:,}" for count in counts),
            )
        return Group(Text(self.totals(), "bold"), table)


def brief(seen: Seen) -> str:
    if seen.condition != "ready":
        return seen.condition
    return f"{_counts(seen.streams.values())}, in flight {len(seen.in_flight)}"


def _counts(values: Iterable[str]) -> str:
    """`CONSUME 3, REPLAY 1`."""
    return ", ".join(f"{name} {count}" for name, count in sorted(Counter(values).items())) or "-"


class Progress(Protocol):
    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Shown(Protocol):
    """Figures as a line and as a table, taken when they are asked for."""

    def line(self) -> str: ...
    def grid(self) -> RenderableType: ...


def progress_of(reporter: Reporter, figures: Shown) -> Progress:
    """Shown as long as the context lasts."""
    if reporter.console.is_terminal:
        return Live(get_renderable=figures.grid, console=reporter.console, refresh_per_second=2, transient=True)
    return Periodic(lambda: reporter.log(figures.line()), LINE_EVERY, name="lines", patience=5)
