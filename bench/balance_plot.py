"""Loads of tasks over a day of drifting load, assigned by count and by load, as a drawing (`bench/balance.py --plot`).

Each step every rate drifts; then the loads are drawn, and only then the assignment by load is renewed: what is drawn is
what a balancer that knows the former step alone leaves uneven.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from blockhouse.balance.model import Weights
from blockhouse.balance.packing import by_count, repack
from blockhouse.balance.sticky import renew

STEPS, STEP_DRIFT = 48, 0.06
"""Half hours of a day, and the lognormal factor of a partition in each."""
WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 200, 48, 34, 36
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")
TEXT = 'font-family="sans-serif" font-size="12" fill="#777"'


@dataclass(frozen=True, slots=True)
class Day:
    """Bytes/s of each task, a row a step, of one way to assign; and how many partitions moved."""

    title: str
    loads: list[list[float]]
    moved: int

    @property
    def ratio(self) -> float:
        """The highest load of any task at any step against the mean of that step."""
        return max(max(row) * len(row) / sum(row) for row in self.loads)


def days(weights: Weights, tasks: Sequence[str], tolerance: float, seed: int) -> tuple[Day, Day]:
    """The same load twice: assigned by count, and by load with sticky steps."""
    chance, current = Random(seed), dict(weights)
    counted, balanced = by_count(dict.fromkeys(tasks, ()), weights), repack(tasks, weights)
    left, right, moved = [], [], 0
    for _ in range(STEPS):
        current = {key: rate * math.exp(chance.gauss(0, STEP_DRIFT)) for key, rate in current.items()}
        for rows, assignment in ((left, counted), (right, balanced)):
            loads = assignment.loads(current)
            rows.append([loads[task] for task in tasks])
        renewed = renew(balanced, tasks, current, tolerance)
        moved += len(renewed.moved_from(balanced))
        balanced = renewed
    return Day("by count", left, 0), Day("by load", right, moved)


def drawn(both: Sequence[Day], partitions: int) -> str:
    """The SVG: a panel for each day, on one scale, a line for each task."""
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
