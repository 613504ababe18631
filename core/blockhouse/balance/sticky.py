"""The stable step: a running assignment changes by the fewest partitions that bring it within its tolerance.

Pure. Only overloaded tasks give, only as much as they are over, and only where it fits: every partition that moves
pauses for a hand-over. The number of tasks changes by the same step, however large the change.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Sequence

from blockhouse.balance.model import Assignment, Weights
from blockhouse.balance.packing import giants, limit, place
from blockhouse.placement.model import TopicPartition

_SLACK = 1e-9
"""Rounding of sums: a task this much above its limit, as a share of it, is not above it."""


def step(
    current: Assignment,
    weights: Weights,
    tolerance: float = 0.10,
    most: int = 0,
    moves: int | None = None,
) -> Assignment:
    """Let overloaded tasks give until none is above the limit, or nothing fits, or `moves` partitions have moved.

    The heaviest task never becomes heavier, and gives first. `weights` must have exactly the partitions of `current`.
    """
    return _Step(current, weights, tolerance, most).run(len(weights) if moves is None else moves)


def renew(
    current: Assignment,
    tasks: Sequence[str],
    weights: Weights,
    tolerance: float = 0.10,
    most: int = 0,
    moves: int | None = None,
    guessed: Collection[TopicPartition] = (),
) -> Assignment:
    """The assignment for these tasks and the partitions in `weights`: gone ones leave, new ones are placed.

    Partitions of tasks that end go to the lightest; then the stable step. `moves` limits that step alone: what had no
    task must get one. `guessed` are the partitions with a default for a weight. Raises NotEnoughRoom; ValueError
    without a task.
    """
    kept = Assignment({task: [key for key in current.get(task, ()) if key in weights] for task in tasks})
    if most:
        kept = _within(kept, weights, most)
    missing = weights.keys() - kept.partitions()
    return step(place(kept, missing, weights, most, guessed), weights, tolerance, most, moves)


def remaining(current: Assignment, weights: Weights, count: int) -> list[str]:
    """The `count` tasks that stay when some end: those with most load, since what they have need not move."""
    loads = current.loads({key: weights.get(key, 0.0) for key in current.partitions()})
    kept = set(sorted(current, key=lambda task: (-loads[task], task))[:count])
    return [task for task in current if task in kept]


def _within(kept: Assignment, weights: Weights, most: int) -> Assignment:
    """Without the lightest of what is more than `most` on a task: these are placed again."""
    return Assignment(
        {
            task: keys if len(keys) <= most else sorted(keys, key=lambda key: (-weights[key], key))[:most]
            for task, keys in kept.items()
        }
    )


class _Step:
    """One step. Tasks are numbers; the partitions of one are sorted by weight from when it first gives on."""

    def __init__(self, current: Assignment, weights: Weights, tolerance: float, most: int) -> None:
        self._weights, self._most = weights, most or len(weights)
        self._names = list(current)
        self._keys = [set(current[name]) for name in self._names]
        found = giants(weights, len(self._names), tolerance)
        self._giants = set(found)
        self._limit = limit(weights, len(self._names), tolerance, found) * (1 + _SLACK)
        loads = current.loads(weights)
        self._loads = [loads[name] for name in self._names]
        self._ordered: dict[int, list[tuple[float, TopicPartition]]] = {}
        self._takers = [(load, task) for task, load in enumerate(self._loads)]
        heapq.heapify(self._takers)

    def run(self, moves: int) -> Assignment:
        """One partition at a time, of the task that is most overloaded then: few moves already help most."""
        givers = [(-self._excess(task), task) for task in range(len(self._names)) if self._excess(task) > 0]
        heapq.heapify(givers)
        while givers and moves > 0:
            _, task = heapq.heappop(givers)
            if self._give(task):
                moves -= 1
                if (excess := self._excess(task)) > 0:
                    heapq.heappush(givers, (-excess, task))
        return Assignment({name: sorted(self._keys[task]) for task, name in enumerate(self._names)})

    def _excess(self, task: int) -> float:
        """Bytes/s that the task has to give. One with a giant gives all else; of several giants it keeps one."""
        own = self._giants & self._keys[task] if self._giants else set()
        allowed = max([self._limit, *(self._weights[key] for key in own)])
        return self._loads[task] - allowed * (1 + _SLACK)

    def _give(self, task: int) -> bool:
        """Let an overloaded task give one partition; False if none that it has would help."""
        if task not in self._ordered:
            self._ordered[task] = sorted((self._weights[key], key) for key in self._keys[task])
        ordered = self._ordered[task]
        if len(ordered) < 2 or (taker := self._lightest(task)) is None:
            return False
        n = self._choose(ordered, self._excess(task), task, taker)
        if n is None:
            return False
        weight, key = ordered.pop(n)
        self._move(key, weight, task, taker)
        return True

    def _choose(
        self, ordered: Sequence[tuple[float, TopicPartition]], excess: float, giver: int, taker: int
    ) -> int | None:
        """The smallest partition that covers the excess and fits; else the largest that fits; None if none helps.

        Where none fits within the limit, one that at least halves what is above it may go: large partitions cannot be
        divided better.
        """
        room = min(self._limit, self._loads[giver]) - self._loads[taker]
        fits = bisect_right(ordered, room, key=_weight)
        covers = bisect_left(ordered, excess, key=_weight)
        n = covers if covers < fits else fits - 1
        if n < 0 or ordered[n][0] <= 0:
            half = excess / 2
            n = bisect_left(ordered, half, key=_weight)
            if n == len(ordered) or self._loads[taker] + ordered[n][0] > self._loads[giver] - half:
                return None
        return n

    def _lightest(self, giver: int) -> int | None:
        """The lightest other task that has room for one more; entries of the heap may be out of date."""
        while self._takers:
            load, task = self._takers[0]
            if load != self._loads[task] or len(self._keys[task]) >= self._most or task == giver:
                heapq.heappop(self._takers)  # the giver is overloaded: no one gives to it in this step
                continue
            return task
        return None

    def _move(self, key: TopicPartition, weight: float, giver: int, taker: int) -> None:
        self._keys[giver].remove(key)
        self._keys[taker].add(key)
        self._loads[giver] -= weight
        self._loads[taker] += weight
        heapq.heappush(self._takers, (self._loads[taker], taker))
        if taker in self._ordered:
            insort(self._ordered[taker], (weight, key))


def _weight(found: tuple[float, TopicPartition]) -> float:
    return found[0]
