"""When the end of one stream's log passed which offset, and how fast messages came and were stored: from samples.

Pure arithmetic: time is handed in, in seconds of any clock that does not jump. It never grows: see MOST.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

MOST = 512
"""Samples of the end that are kept: when there are more, every second one of the older half is dropped, so that ages
stay true to within a small part of themselves."""
RATE_SECONDS = 60.0
"""Over which rates are taken."""


class Passed(NamedTuple):
    """At `at` the log's end was `end`: every message below it was there."""

    at: float
    end: int


class Counted(NamedTuple):
    """At `at` the log's end was `end` and `lag` messages were not stored."""

    at: float
    end: int
    lag: int


@dataclass(slots=True)
class LogHistory:
    """Of one stream while it is owned."""

    _passed: list[Passed] = field(default_factory=list)
    _counted: deque[Counted] = field(default_factory=deque)
    seeded: bool = False
    """Whether the time before the first sample has been asked for."""

    def seed(self, passed: list[Passed]) -> None:
        """What the brokers know of the time before the first sample, oldest first; what contradicts it is left out."""
        if not self._passed:
            return
        self.seeded = True
        first = self._passed[0]
        older = [each for each in passed if each.at < first.at and each.end <= first.end]
        rising = [each for number, each in enumerate(older) if all(each.end <= later.end for later in older[number:])]
        self._passed = [*rising, *self._passed]

    def add(self, at: float, end: int, lag: int) -> None:
        """A sample. An end that is lower than the one before is of another log: what was known is dropped."""
        if self._passed and end < self._passed[-1].end:
            self._passed.clear()
            self._counted.clear()
        if not self._passed or end > self._passed[-1].end:
            self._passed.append(Passed(at, end))
            if len(self._passed) > MOST:
                half = len(self._passed) // 2
                self._passed = [*self._passed[:half:2], *self._passed[half:]]
        self._counted.append(Counted(at, end, lag))
        while len(self._counted) > 2 and self._counted[1].at <= at - RATE_SECONDS:
            self._counted.popleft()

    def age(self, stored: int, now: float) -> float | None:
        """Seconds since the end passed `stored`, of a stream with messages that are not stored. Of one that came after
        the last sample: since that sample, at most. Of one that was there before the oldest sample: at least so much.
        None: not known, as what was before the first sample is until it has been asked for."""
        if not self._passed:
            return None
        if stored >= self._passed[-1].end:
            return max(0.0, now - self._counted[-1].at)
        index = bisect_right(self._passed, stored, key=lambda each: each.end)
        if index == 0 and not self.seeded:
            return None
        return max(0.0, now - self._passed[index].at)

    @property
    def arriving(self) -> float | None:
        """Messages a second by which the log grew; None before two samples."""
        if len(self._counted) < 2 or (seconds := self._counted[-1].at - self._counted[0].at) <= 0:
            return None
        return (self._counted[-1].end - self._counted[0].end) / seconds

    @property
    def storing(self) -> float | None:
        """Messages a second that were stored; None before two samples."""
        arriving = self.arriving
        if arriving is None:
            return None
        first, last = self._counted[0], self._counted[-1]
        return max(0.0, arriving - (last.lag - first.lag) / (last.at - first.at))

    def catching_up(self, lag: int) -> float | None:
        """Seconds to store `lag` messages at that rate; None when it is not known or nothing is stored."""
        if lag == 0:
            return 0.0
        storing = self.storing
        return lag / storing if storing else None
