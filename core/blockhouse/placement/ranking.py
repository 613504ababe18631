"""Which of the brokers that may take a slot is the best, and how that changes as slots are filled.

The two orders are kept sorted between choices, so that a plan of 10,000 partitions does not sort its brokers 30,000
times. Nothing here knows partitions or racks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from blockhouse.placement.constraints import Slot
from blockhouse.placement.model import Broker


class Ranking(Protocol):
    """An order of brokers that follows the placements made."""

    def choose(self, slot: Slot, *, former: Sequence[int] = (), seed: int = 0) -> int | None:
        """Id of the best broker that passes, or None. It is not yet placed."""

    def place(self, broker: int, need: float) -> None:
        """Record a replica of `need` bytes on the broker."""

    def free_space(self, broker: int) -> float:
        """Bytes left on the broker; 0 where storage is not considered."""

    def explain(self, slot: Slot) -> str:
        """Why no broker passes."""


class ByCount:
    """Fewest replicas first; among equals a former holder of the partition, else one picked by the seed.

    The pick by seed spreads the partners of a broker over all brokers: always taking the lowest id would make
    the same few brokers share all their partitions, and they would be the only sources when one is replaced.
    """

    def __init__(self, brokers: Mapping[int, Broker], used: Mapping[int, int]) -> None:
        self._brokers = brokers
        self._used = {id: used.get(id, 0) for id in brokers}
        self._levels: dict[int, list[int]] = {}
        for id, count in self._used.items():
            insort(self._levels.setdefault(count, []), id)

    @property
    def used(self) -> Mapping[int, int]:
        """Replicas held, by broker id, placements included."""
        return self._used

    def choose(self, slot: Slot, *, former: Sequence[int] = (), seed: int = 0) -> int | None:
        for level in sorted(self._levels):
            run = [id for id in self._levels[level] if slot.refusal(self._brokers[id], 0.0) is None]
            if run:
                return next((id for id in former if id in run), run[seed % len(run)])
        return None

    def place(self, broker: int, need: float) -> None:  # noqa: ARG002 (counts do not depend on size)
        level = self._used[broker]
        self._levels[level].remove(broker)
        if not self._levels[level]:
            del self._levels[level]
        self._used[broker] = level + 1
        insort(self._levels.setdefault(level + 1, []), broker)

    def free_space(self, broker: int) -> float:  # noqa: ARG002
        return 0.0

    def explain(self, slot: Slot) -> str:
        return slot.explain((broker, 0.0) for broker in self._brokers.values())


class ByFreeSpace:
    """Most free space first, ties by id. `free` is the live ledger in bytes; placements lower it."""

    def __init__(self, brokers: Mapping[int, Broker], free: dict[int, float], candidates: Iterable[int]) -> None:
        self._brokers = brokers
        self._free = free
        self._order = sorted((-free[id], id) for id in candidates)

    def choose(self, slot: Slot, *, former: Sequence[int] = (), seed: int = 0) -> int | None:  # noqa: ARG002
        for negated, id in self._order:
            if slot.refusal(self._brokers[id], -negated) is None:
                return id
            if -negated < slot.need:
                return None  # everyone behind has less
        return None

    def place(self, broker: int, need: float) -> None:
        del self._order[bisect_left(self._order, (-self._free[broker], broker))]
        self._free[broker] -= need
        insort(self._order, (-self._free[broker], broker))

    def free_space(self, broker: int) -> float:
        return self._free[broker]

    @property
    def most_free(self) -> float:
        """Bytes left on the first broker; minus infinity without brokers."""
        return -self._order[0][0] if self._order else float("-inf")

    def explain(self, slot: Slot) -> str:
        return slot.explain((self._brokers[id], -negated) for negated, id in self._order)
