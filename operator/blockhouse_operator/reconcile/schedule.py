"""Which key is to be reconciled when: a queue without duplicates, one turn per key at a time, back-off after failure.

Pure but for its own state: the caller tells the time. It must never lose a key: one that is added during its own turn
gets another turn.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 120.0


class Schedule(Generic[Key]):
    """Keys and the times they are due, in seconds of any clock that only goes forward.

    `chance()` returns a number in [0, 1): failed keys come back after 50 to 100 % of their doubled delay, so that many
    that failed together do not come back together.
    """

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._order = 0
        self._working: set[Key] = set()
        self._failures: dict[Key, int] = {}

    def add(self, key: Key, at: float) -> None:
        """Let the key have a turn at `at`, or earlier where it already had an earlier one."""
        if at < self._due.get(key, float("inf")):
            self._due[key] = at
            self._order += 1
            heapq.heappush(self._heap, (at, self._order, key))

    def take(self, now: float) -> Key | None:
        """The key that has waited longest of those that are due and not at work. Its turn lasts until `finish`."""
        held = []
        taken = None
        while taken is None and self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            at, _, key = entry
            if self._due.get(key) != at:
                continue
            if key in self._working:
                held.append(entry)
            else:
                taken = key
        for entry in held:
            heapq.heappush(self._heap, entry)
        if taken is not None:
            del self._due[taken]
            self._working.add(taken)
        return taken

    def finish(self, key: Key) -> None:
        """The key's turn ended well."""
        self._working.discard(key)
        self._failures.pop(key, None)

    def fail(self, key: Key, now: float, at_least: float = 0.0) -> float:
        """The key's turn failed: it gets another one, later each time. Returns the delay in seconds."""
        self._working.discard(key)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        ceiling = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(failures - 1, 32))
        delay = max(at_least, ceiling * (0.5 + self._chance() / 2))
        self.add(key, now + delay)
        return delay

    def forget(self, key: Key) -> None:
        """The object is gone: no more turns, unless it is added again."""
        self._due.pop(key, None)
        self._failures.pop(key, None)

    def next_at(self) -> float | None:
        """When a key that is not at work is due next."""
        return min((at for key, at in self._due.items() if key not in self._working), default=None)

    def __len__(self) -> int:
        """Keys that wait for a turn."""
        return len(self._due)

    @property
    def working(self) -> frozenset[Key]:
        return frozenset(self._working)
