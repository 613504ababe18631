"""Loads of tasks over a day of drifting load, assigned by count and by load, as a drawing (`bench/balance.py --plot`).

Each step every rate drifts; then the loads are drawn, and only then a mirror decides, by its own rules with quiet hours
all day: what is drawn is what the tasks carry at worst, just before a look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from blockhouse.balance.model import Assignment, Weights, quality
from blockhouse.balance.packing import by_count, giants, repack
from blockhouse.balance.quiet import QuietHours
from blockhouse.balance.triggers import Look, RebalanceSettings, RebalanceState, decide
from e2e.kit.plot import COLOURS, TEXT

STEPS, STEP, STEP_DRIFT = 48, timedelta(minutes=30), 0.06
"""Half hours of a day, and the lognormal factor of a partition in each."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ALWAYS = (QuietHours.parse("00:00-12:00"), QuietHours.parse("12:00-00:00"))
WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 200, 48, 34, 36

Weigh = Callable[[Weights, datetime], Weights]
"""What a mirror knows of the true rates at a moment."""


@dataclass(slots=True)
class Day:
    """One way to assign: bytes/s of each task just before each look, max/mean just after it, and partitions moved.

    `over` has, for each task above the tolerance at a look, the share of the mean that its largest partition has.
    """

    title: str
    tolerance: float
    loads: list[list[float]] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    moves: list[int] = field(default_factory=list)
    over: list[float] = field(default_factory=list)

    def add(self, before: Assignment, after: Assignment, rates: Weights) -> None:
        """One look."""
        loads, mean = before.loads(rates), quality(before, rates).mean
        self.loads.append(list(loads.values()))
        heavy = (keys for task, keys in before.items() if loads[task] > (1 + self.tolerance) * mean)
        self.over += [max(rates[key] for key in keys) / mean for keys in heavy]
        self.after.append(quality(after, rates).ratio)
        self.moves.append(len(after.moved_from(before)))

    @property
    def ratio(self) -> float:
        """The highest load of any task at any step against the mean of that step."""
        return max(max(row) * len(row) / sum(row) for row in self.loads)

    @property
    def settled(self) -> float:
        """As `ratio`, just after each look."""
        return max(self.after)

    @property
    def moved(self) -> int:
        return sum(self.moves)


@dataclass(slots=True)
class Days:
    """The same load twice: assigned by count, and by load. `giant`: at some look a partition was above the limit."""

    by_count: Day
    by_load: Day
    giant: bool = False


def known(rates: Weights, _: datetime) -> Weights:
    """All of them as they are now."""
    return rates


def days(weights: Weights, tasks: Sequence[str], tolerance: float, seed: int, weigh: Weigh = known) -> Days:
    """A day that begins with these rates, well assigned by load."""
    chance, current, now = Random(seed), dict(weights), BEGIN
    counted, balanced = by_count(dict.fromkeys(tasks, ()), weights), repack(tasks, weights)
    settings, state = RebalanceSettings(tolerance=tolerance, quiet_hours=ALWAYS), RebalanceState()
    found = Days(Day("by count", tolerance), Day("by load", tolerance))
    for _ in range(STEPS):
        now += STEP
        current = {key: rate * math.exp(chance.gauss(0, STEP_DRIFT)) for key, rate in current.items()}
        decision, state = decide(balanced, Look(now, weigh(current, now), tasks), settings, state)
        found.by_count.add(counted, counted, current)
        found.by_load.add(balanced, decision.assignment, current)
        found.giant |= bool(giants(current, len(tasks), tolerance))
        balanced = decision.assignment
    return found


def drawn(found: Days, partitions: int) -> str:
    """The SVG: a panel for each day, on one scale, a line for each task."""
    both = (found.by_count, found.by_load)
    top = 1.1 * max(max(row) for day in both for row in day.loads)
    width, height = LEFT + len(both) * (WIDTH + GAP), TOP + HEIGHT + 30
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>']
    for number, day in enumerate(both):
        x = LEFT + number * (WIDTH + GAP)
        moved = f", {day.moved} moves" if day.moved else ""
        title = f"{day.title}: max/mean at most {day.ratio:.2f}{moved}"
        parts.append(f'<text x="{x}" y="{TOP - 14}" {TEXT}>{title}</text>')
        parts.append(f'<rect x="{x}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>')
        for task in range(len(day.loads[0])):
            points = " ".join(
                f"{x + step * WIDTH / (STEPS - 1):.1f},{TOP + HEIGHT * (1 - row[task] / top):.1f}"
                for step, row in enumerate(day.loads)
            )
            colour = COLOURS[task % len(COLOURS)]
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
        parts.append(f'<text x="{x}" y="{TOP + HEIGHT + 18}" {TEXT}>0 h</text>')
        parts.append(f'<text x="{x + WIDTH - 28}" y="{TOP + HEIGHT + 18}" {TEXT}>24 h</text>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = TOP + HEIGHT * (1 - share)
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end" {TEXT}>{share * top / 1e6:.0f}</text>')
    tasks = len(both[0].loads[0])
    about = f"MB/s of each of {tasks} tasks, {partitions:,} partitions"
    parts.append(f'<text x="{width - GAP}" y="{height - 2}" text-anchor="end" {TEXT}>{about}</text>')
    return "\n".join([*parts, "</svg>", ""])
