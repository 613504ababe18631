"""A mirror while it runs: its status twice a second, as a table of tasks with their loads, or as a line."""

from __future__ import annotations

import time

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from blockhouse.contract.mirror import MirrorStatus
from blockhouse.fleet.load.view import byte_rate
from e2e.demo.mirror.feed import Feed
from e2e.demo.mirror.scenario import CAPACITY, UTILIZATION
from e2e.demo.progress import Rate
from e2e.kit.mirror import MirrorProcess
from e2e.stack.periodic import Periodic

INTERVAL = 0.5
BAR = 20
"""Characters of a task that carries all that is planned for one."""


class Watch(Periodic):
    """The latest status of a mirror; None while it does not answer."""

    def __init__(self, mirror: MirrorProcess) -> None:
        super().__init__(self.look, INTERVAL, name="mirror-watch")
        self.latest: MirrorStatus | None = None
        self._mirror = mirror

    def look(self) -> MirrorStatus | None:
        """The status right now."""
        self.latest = self._mirror.status()
        return self.latest


def running(status: MirrorStatus | None) -> int:
    """Tasks that can be spoken to."""
    return sum(task.running for task in status.tasks) if status is not None else 0


def all_held(status: MirrorStatus | None) -> bool:
    """Every partition is mirrored by the task it is assigned to."""
    if status is None or not status.partitions:
        return False
    return all(each.holder == each.task and each.task and not each.waits for each in status.partitions)


def held_by_task(status: MirrorStatus | None) -> dict[str, int]:
    """How many partitions each running task has."""
    held = {task.name: 0 for task in status.tasks if task.running} if status is not None else {}
    for each in status.partitions if status is not None else ():
        if each.holder in held:
            held[each.holder] += 1
    return held


class Figures:
    """The numbers of one moment. `phase` is what the load does."""

    def __init__(self, watch: Watch, feed: Feed) -> None:
        self.phase = ""
        self._watch, self._feed = watch, feed
        self._produced, self._mirrored = Rate(), Rate()
        self._positions = 0

    def line(self) -> str:
        status = self._watch.latest
        tasks = [f"{task.name} {byte_rate(task.bytes_per_second)}" for task in status.tasks] if status else []
        return f"{self.totals()}; {', '.join(tasks) or 'no driver'}"

    def totals(self) -> str:
        now, status, produced = time.monotonic(), self._watch.latest, self._feed.acknowledged
        if status is not None and status.partitions:
            self._positions = max(self._positions, sum(max(each.position, 0) for each in status.partitions))
        rates = self._produced.per_second(now, produced), self._mirrored.per_second(now, self._positions)
        behind = max((each.lag_seconds for each in status.partitions), default=0.0) if status is not None else None
        return (
            f"{self.phase}: produced {produced:,} ({rates[0]:,.0f}/s), mirrored {self._positions:,} ({rates[1]:,.0f}/s)"
            + (f", latest {behind:.1f} s behind" if behind is not None else "")
        )

    def grid(self) -> RenderableType:
        status = self._watch.latest
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("task", "state", "partitions", "load", "of what is planned for one"):
            table.add_column(name, justify="right" if name in ("partitions", "load") else "left")
        held = held_by_task(status)
        for task in status.tasks if status is not None else ():
            state = Text("running", "green") if task.running else Text("starting", "yellow")
            counts = f"{held.get(task.name, 0)} of {task.partitions}"
            rate = task.bytes_per_second
            table.add_row(task.name, state, counts, byte_rate(rate), bar(rate / (CAPACITY * UTILIZATION)))
        if status is None:
            table.add_row("-", Text("no driver", "red"), "", "", "")
        return Group(Text(self.totals(), "bold"), table)


def bar(part: float) -> Text:
    """A bar of a part of a whole, which may be above one."""
    return Text("#" * min(round(part * BAR), 2 * BAR), "red" if part > 1 else "cyan").append(f" {part:.0%}", "")
