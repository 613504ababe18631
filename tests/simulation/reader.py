"""A worker's Kafka client: it keeps what it has fetched, and learns late, or never, what became of the log.

As measured on Kafka 4.3.1: a client that is positioned in a topic that is deleted and made again reads nothing for
seconds and then reads on in the new one; one that learns of another leader asks whether its position is still reached
in the epoch it knows for it, and one that knows the leader already does not ask when it seeks.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.logs import Content, StreamLog
from tests.simulation.world import World

UNAWARE = (0.1, 2.0)
"""Seconds for which a client does not know of another leader, or of another topic; it reads nothing new meanwhile."""


class Unreadable(Exception):
    """The log is not what the client knows. `reason` as of `kafka.fetch`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Reader:
    """Of one lease. `reachable`: whether the leader answers now."""

    def __init__(self, world: World, log: StreamLog, reachable: Callable[[], bool]) -> None:
        self._world = world
        self._log = log
        self._reachable = reachable
        self._known: Content | None = None
        """The newest content whose leader it knows."""
        self._fetched: Content | None = None
        self._joint: tuple[Content, int] | None = None
        """What it had fetched of a former topic, and up to where, when it read on in another one."""
        self._next = self._position = self._epoch = -1
        self._learns_at = 0.0

    def seek(self, offset: int, epoch: int = -1) -> None:
        """Continue at `offset`; what is fetched is kept when that is where the last order ended."""
        if offset != self._next:
            self._next, self._position, self._epoch = offset, offset, epoch
            self._fetched = self._joint = None

    def ended(self, at: int) -> None:
        """An order has ended there; -1: nowhere in particular."""
        self._next = at

    def read(self) -> Content | None:
        """What it has, and can have now; None: nothing yet. Raises Unreadable."""
        if not self._reachable():
            return self._fetched
        latest = self._log.content
        if latest is not self._known and not self._learns(latest):
            return self._fetched
        self._fetched = latest if self._joint is None else self._joint[0].joined(latest, self._joint[1])
        self._position = max(self._position, self._fetched.end)
        return self._fetched

    def _learns(self, latest: Content) -> bool:
        """Whether it has learned of the latest content by now. Raises Unreadable when its position is none there."""
        now, former = self._world.loop.time(), self._known
        if former is not None:
            if not self._learns_at:
                self._learns_at = now + self._world.random.uniform(*UNAWARE)
            if now < self._learns_at:
                return False
        self._learns_at, self._known = 0.0, latest
        if former is not None and former.topic != latest.topic:
            if self._position > latest.end and self._world.random.random() < 0.5:
                raise self._lost("BeyondLogEnd")
            if self._fetched is not None:
                self._joint = (self._fetched, self._position)
            return True
        if self._position > latest.end:
            raise self._lost("BeyondLogEnd")
        epoch = self._epoch if self._fetched is None else self._fetched.epoch_at(self._position)
        if epoch >= 0 and not latest.reaches(self._position, epoch):
            raise self._lost("LogTruncated")
        return True

    def _lost(self, reason: str) -> Unreadable:
        self._next, self._fetched, self._joint = -1, None, None
        return Unreadable(reason)
