"""How many tasks: by load, by number of partitions, within bounds; more at once, fewer only after patience.

Pure; windows are counted, not timed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from blockhouse.balance.model import Weights

LOWER = 0.25
"""Fewer tasks are worth a change when at least a quarter would end."""
LOW_WINDOWS = 3


class CappedBy(StrEnum):
    """What kept the number of tasks from what the load asks for."""

    MIN = "Min"
    MAX = "Max"


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """What one task can do, and how many there may be. `capacity` in bytes/s, of which `utilization` is planned."""

    capacity: float
    utilization: float = 0.70
    most_partitions: int = 500
    fewest: int = 1
    most: int = 32

    def __post_init__(self) -> None:
        if not (self.capacity > 0 and 0 < self.utilization <= 1 and self.most_partitions >= 0):
            raise ValueError("a task needs a capacity above 0, a utilization in (0, 1], and partitions >= 0")
        if not 1 <= self.fewest <= self.most:
            raise ValueError(f"tasks must be bounded by 1 <= {self.fewest} <= {self.most}")

    @property
    def usable(self) -> float:
        """Bytes/s planned for a task."""
        return self.capacity * self.utilization


@dataclass(frozen=True, slots=True)
class Needed:
    """Tasks needed, within the bounds, and which bound changed it."""

    tasks: int
    capped_by: CappedBy | None = None


def by_load(total: float, usable: float) -> int:
    """Tasks that carry `total` bytes/s with `usable` each; 1 for no load."""
    return max(math.ceil(total / usable), 1)


def by_partitions(partitions: int, most: int) -> int:
    """Tasks that hold this many partitions; 1 for none, and where any number fits."""
    return max(math.ceil(partitions / most), 1) if most else 1


def needed(weights: Weights, limits: TaskLimits) -> Needed:
    """Tasks for these partitions: by load and by number, and more until the largest-first assignment fits.

    A partition that is above a task's usable bytes/s by itself counts as one task: no number helps it.
    """
    least = max(
        by_load(sum(min(weight, limits.usable) for weight in weights.values()), limits.usable),
        by_partitions(len(weights), limits.most_partitions),
    )
    most = min(limits.most, max(len(weights), 1))
    ordered = sorted(weights.values(), reverse=True)
    low = high = least  # `low` and all below do not fit: doubled steps find one that does, halves the least
    while high < most and not _fits(ordered, high, limits):
        low, high = high + 1, min(2 * high - least + 1, most)
    if least > most or (high == most and not _fits(ordered, most, limits)):
        return Needed(limits.most, CappedBy.MAX)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(ordered, middle, limits) else (middle + 1, high)
    return Needed(limits.fewest, CappedBy.MIN) if high < limits.fewest else Needed(high)


def _fits(ordered: Sequence[float], tasks: int, limits: TaskLimits) -> bool:
    """Whether these weights, heaviest first, each on the lightest task with room, leave none above its usable bytes/s.

    A weight above that by itself does not count against a number of tasks.
    """
    most = limits.most_partitions or len(ordered)
    if len(ordered) > most * tasks:
        return False
    allowed = max(limits.usable, ordered[0]) if ordered else limits.usable
    heap = [(0.0, 0)] * tasks
    for weight in ordered:
        load, count = heap[0]
        if load + weight > allowed:
            return False
        if count + 1 == most:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (load + weight, count + 1))
    return True


@dataclass(frozen=True, slots=True)
class CountState:
    """How many windows in a row asked for at least a quarter fewer tasks, and the most that any of them asked for."""

    low_windows: int = 0
    highest: int = 0


def scaled(running: int, asked: Needed, state: CountState, *, may_shrink: bool) -> tuple[int, CountState]:
    """Tasks from now on, after one more window that asked for `asked`. Call it once a window.

    More at once. Fewer when three windows in a row asked for at least a quarter fewer and `may_shrink` (quiet hours,
    or the cool-down is over): then as many as the highest of these windows asked for.
    """
    if asked.tasks >= running:
        return asked.tasks, CountState()
    if asked.tasks > running * (1 - LOWER):
        return running, CountState()
    state = replace(state, low_windows=state.low_windows + 1, highest=max(state.highest, asked.tasks))
    if state.low_windows >= LOW_WINDOWS and may_shrink:
        return state.highest, CountState()
    return running, state
