"""How soon a resource that is not as it should be is reconciled again: later each time while it stays as it is.

A trouble of all, such as a Kafka cluster that is down, must not bring thousands of shards back every few seconds, when
there is most to do.
"""

from __future__ import annotations

Place = tuple[str, str]
"""Namespace and name."""


class Backoff:
    """How often each resource was found as it was before."""

    def __init__(self) -> None:
        self._same: dict[Place, int] = {}

    def next(self, place: Place, seconds: float, resync: float, *, settled: bool, changed: bool) -> float:
        """Seconds until the next reconcile: `resync` where the resource is `settled`, else as `after`."""
        if settled:
            self.forget(place)
            return resync
        return self.after(place, seconds, resync, changed=changed)

    def after(self, place: Place, seconds: float, longest: float, *, changed: bool) -> float:
        """`seconds` after a change, then twice as long each time, `longest` at most."""
        self._same[place] = 0 if changed else self._same.get(place, -1) + 1
        return min(longest, seconds * 2.0 ** min(self._same[place], 16))

    def forget(self, place: Place) -> None:
        """The resource is gone, or as it should be."""
        self._same.pop(place, None)
