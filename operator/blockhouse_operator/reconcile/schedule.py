"""Which key is to be reconciled when: a queue without duplicates, one reconcile per key at a time, back-off on failure.

Some keys go first: a pipeline must not wait until hundreds of its shards were reconciled. They pay for it with a rest
after each reconcile, for all those shards wake it again and again. Where both wait, they and the others alternate;
so with n keys of its sort a key that is due waits for at most 2n - 1 reconciles of others to begin.

Pure but for its own state: the caller passes the time. It must never lose a key: one that is added during its own
reconcile is reconciled again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable
from random import Random
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 120.0

SHORTEST_REST = 1.0
LONGEST_REST = 15.0
REST_PER_RECONCILE = 3.0
"""Times the length of its reconcile that a key that goes first rests: hints get it a quarter of one worker at most."""
STEPS_OF_RESYNC = 30
"""Moments of a resync at which idle resources are reconciled."""


def spread(seconds: float, resync: float, now: float, chance: Random) -> float:
    """Seconds to the next reconcile, somewhat longer than `seconds`, so that resources that were reconciled together do
    not all come back together. Idle ones, after a `resync`, come back some at a time, for a process that sleeps before
    each one takes several times as long for it."""
    longer = seconds * (1 + chance.random() / 5)
    if seconds < resync:
        return longer
    step = resync / STEPS_OF_RESYNC
    return math.ceil((now + longer) / step) * step - now


class Schedule(Generic[Key]):
    """Keys and the times they are due, in seconds of any clock that only goes forward.

    `chance()` returns a number in [0, 1): failed keys come back after 50 to 100 % of their doubled delay, so that many
    that failed together do not come back together. `first(key)`: whether a key goes before the others, and rests.
    """

    def __init__(self, chance: Callable[[], float], first: Callable[[Key], bool] = lambda _: False) -> None:
        self._chance = chance
        self._first = first
        self._due: dict[Key, tuple[float, int]] = {}
        # Entries that are not in `_due` any more are stale. A key at work has no other entry.
        self._waiting: dict[bool, list[tuple[float, int, Key]]] = {True: [], False: []}
        self._order = 0
        self._began: dict[Key, float] = {}
        self._hinted: dict[Key, float] = {}
        self._rested: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._others_next = False

    def add(self, key: Key, at: float) -> None:
        """Let the key be reconciled at `at`, or earlier where it already had an earlier one."""
        if key in self._due and self._due[key][0] <= at:
            return
        self._order += 1
        self._due[key] = (at, self._order)
        if key not in self._began:
            self._push(key)

    def hint(self, key: Key, at: float) -> None:
        """The same for something that is less than a change of the key's own spec: where it has to rest, after that."""
        if key in self._began:
            self._hinted[key] = min(at, self._hinted.get(key, at))
        else:
            self.add(key, max(at, self._rested.get(key, at)))

    def take(self, now: float) -> Key | None:
        """The key to reconcile now, which lasts until `finish` or `fail`; None when none is due.

        Of those that go first, and of the others, it is the one that has waited longest.
        """
        due = {first: self._oldest(first) for first in (True, False)}
        ready = [first for first, entry in due.items() if entry is not None and entry[0] <= now]
        if not ready:
            return None
        first = not self._others_next if len(ready) == 2 else ready[0]
        self._others_next = first and len(ready) == 2
        _, _, key = heapq.heappop(self._waiting[first])
        del self._due[key]
        self._rested.pop(key, None)
        self._began[key] = now
        return key

    def finish(self, key: Key, now: float) -> None:
        """The key's reconcile succeeded."""
        self._failures.pop(key, None)
        self._end(key, now)

    def fail(self, key: Key, now: float, at_least: float = 0.0) -> float:
        """The key's reconcile failed: it is repeated, later each time. Returns the delay in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        ceiling = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(failures - 1, 32))
        delay = max(at_least, ceiling * (0.5 + self._chance() / 2))
        self._end(key, now)
        self.add(key, now + delay)
        return delay

    def forget(self, key: Key) -> None:
        """The object is gone: no more reconciles, unless it is added again."""
        for known in (self._due, self._hinted, self._failures):
            known.pop(key, None)

    def next_at(self) -> float | None:
        """When a key that is not at work is due next."""
        return min((entry[0] for entry in map(self._oldest, (True, False)) if entry is not None), default=None)

    def __len__(self) -> int:
        """Keys that wait for a reconcile."""
        return len(self._due.keys() | self._hinted.keys())

    @property
    def working(self) -> frozenset[Key]:
        return frozenset(self._began)

    def _end(self, key: Key, now: float) -> None:
        began = self._began.pop(key)
        if self._first(key):
            rest = min(LONGEST_REST, max(SHORTEST_REST, REST_PER_RECONCILE * (now - began)))
            self._rested = {other: until for other, until in self._rested.items() if until > now}
            self._rested[key] = now + rest
        if key in self._due:
            self._push(key)
        if key in self._hinted:
            self.hint(key, self._hinted.pop(key))

    def _push(self, key: Key) -> None:
        heapq.heappush(self._waiting[self._first(key)], (*self._due[key], key))

    def _oldest(self, first: bool) -> tuple[float, int, Key] | None:
        waiting = self._waiting[first]
        while waiting and self._due.get(waiting[0][2]) != waiting[0][:2]:
            heapq.heappop(waiting)
        return waiting[0] if waiting else None
