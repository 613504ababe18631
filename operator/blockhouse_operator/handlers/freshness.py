"""Whether the watch of our resources is alive: a watch can die without an error, and then nothing happens any more.

A list finds now and then what is there. What it finds and no event has reported, for longer than an event takes, was
missed: the process is not healthy and has to be restarted. An idle cluster, which sends no events, is no such case.
"""

from __future__ import annotations

MISSED_SECONDS = 120.0


class Freshness:
    """Generations reported by events against generations found by lists. The caller gives the time."""

    def __init__(self) -> None:
        self._reported: dict[str, int] = {}
        self._waiting: dict[str, tuple[int, float]] = {}

    def reported(self, uid: str, generation: int) -> bool:
        """An event reported the object; returns whether its spec is new."""
        new = self._reported.get(uid) != generation
        self._reported[uid] = generation
        if uid in self._waiting and self._waiting[uid][0] <= generation:
            del self._waiting[uid]
        return new

    def found(self, uid: str, generation: int, at: float) -> bool:
        """A list found the object; returns whether no event has reported its spec."""
        if self._reported.get(uid, -1) >= generation:
            return False
        if uid not in self._waiting or self._waiting[uid][0] != generation:
            self._waiting[uid] = (generation, at)
        return True

    def gone(self, uid: str) -> None:
        self._reported.pop(uid, None)
        self._waiting.pop(uid, None)

    def keep_only(self, uids: set[str]) -> None:
        """What a whole list did not show is forgotten."""
        for uid in (self._reported.keys() | self._waiting.keys()) - uids:
            self.gone(uid)

    def missed(self, at: float) -> bool:
        """Whether an event is missing that should have come."""
        return any(at - since > MISSED_SECONDS for _, since in self._waiting.values())
