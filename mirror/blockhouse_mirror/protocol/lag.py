"""How late a partition is, in seconds, from where its log ended at moments that are known. Pure."""

from __future__ import annotations

from collections import deque

KEPT = 120
"""Moments kept of a partition that is behind; beyond that every second one is forgotten, so lateness is exact to
within that share of it."""


class Lateness:
    """Of one partition. Moments are seconds of one clock."""

    __slots__ = ("_ends", "position")

    def __init__(self) -> None:
        self.position = -1
        self._ends: deque[tuple[float, int]] = deque()

    @property
    def end(self) -> int:
        """The log end seen last; the position where nothing is behind it."""
        return self._ends[-1][1] if self._ends else self.position

    def seen(self, now: float, end: int) -> None:
        """The log ends there."""
        if end > self.end or not self._ends:
            self._ends.append((now, end))
        if len(self._ends) > KEPT:
            self._ends = deque([*list(self._ends)[:-1:2], self._ends[-1]])
        self._trim()

    def reached(self, position: int) -> None:
        """Everything below is on the target."""
        self.position = position
        self._trim()

    def seconds(self, now: float) -> float:
        """Since when there is something at the position that is not on the target; 0 when there is nothing."""
        return max(0.0, now - self._ends[0][0]) if self._ends else 0.0

    def records(self) -> int:
        """Offsets between position and end: an upper bound of the records behind."""
        return max(0, self.end - self.position)

    def _trim(self) -> None:
        while self._ends and self._ends[0][1] <= self.position:
            self._ends.popleft()
