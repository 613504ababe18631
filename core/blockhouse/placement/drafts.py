"""Replica sets in the making, and the last touch that makes them even.

Filling slots one after the other can end with one broker two replicas ahead: the last slots had no better choice. An
exchange afterwards puts that right; it touches only slots that were open, never a replica that stayed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from blockhouse.placement.constraints import Slot
from blockhouse.placement.model import Broker, ReplicaSet, TopicPartition


@dataclass(slots=True)
class Draft:
    """A replica set being filled; `size` is in bytes.

    `slots` holds None where a broker is desired, `open` the positions that were so at first, `leaves` who was there.
    """

    key: TopicPartition
    former: ReplicaSet
    slots: list[int | None]
    leaves: list[int | None]
    size: float = 0.0
    open: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.open = frozenset(position for position, id in enumerate(self.slots) if id is None)

    @property
    def present(self) -> list[int]:
        return [id for id in self.slots if id is not None]


def even_out(
    drafts: Sequence[Draft], brokers: Mapping[int, Broker], used: Mapping[int, int], min_rack_ids: int
) -> dict[int, int]:
    """Pass filled slots on, in place, until no chain leads from a broker to one with at least two replicas less.

    `used` are the replicas each broker holds now, these drafts included. Returns the same afterwards.
    """
    evening = _Evening(drafts, brokers, used, min_rack_ids)
    evening.run()
    return evening.counts


_Handover = tuple[int, int, int]
"""Index of the draft, who gives its slot, who takes it."""


class _Evening:
    """`_held[id]` are the drafts, by index, in which the broker fills a slot that was open."""

    def __init__(
        self, drafts: Sequence[Draft], brokers: Mapping[int, Broker], used: Mapping[int, int], min_rack_ids: int
    ) -> None:
        self._drafts = drafts
        self._brokers = brokers
        self.counts = dict(used)
        self._min_rack_ids = min_rack_ids
        self._held: dict[int, dict[int, None]] = {id: {} for id in brokers}
        for index, draft in enumerate(drafts):
            for position in draft.open:
                id = draft.slots[position]
                if id is not None:
                    self._held[id][index] = None

    def run(self) -> None:
        stuck: set[int] = set()
        while (heavy := self._heaviest(stuck)) is not None:
            reached, chain = self._search(heavy)
            for handover in chain:
                self._carry_out(handover)
            # Who was reached in vain reaches no more than `heavy` did: trying it again would find nothing either.
            stuck = set() if chain else stuck | reached

    def _heaviest(self, stuck: Collection[int]) -> int | None:
        lightest = min(self.counts.values(), default=0)
        heavy = [id for id, count in self.counts.items() if count >= lightest + 2 and id not in stuck]
        return max(heavy, key=lambda id: (self.counts[id], id), default=None)

    def _search(self, start: int) -> tuple[set[int], list[_Handover]]:
        """Everyone a slot of `start` can be passed to, and the shortest chain to one with two replicas less.

        The chain is empty if there is none. Each of its hand-overs is in a draft of its own, so they do not interfere.
        """
        chains: dict[int, list[_Handover]] = {start: []}
        queue = deque([start])
        while queue:
            giver = queue.popleft()
            for index in self._held[giver]:
                if any(index == used for used, _, _ in chains[giver]):
                    continue
                for taker in self._takers(index, giver, chains):
                    chains[taker] = [*chains[giver], (index, giver, taker)]
                    if self.counts[taker] <= self.counts[start] - 2:
                        return set(chains), chains[taker]
                    queue.append(taker)
        return set(chains), []

    def _takers(self, index: int, giver: int, known: Collection[int]) -> list[int]:
        others = [id for id in self._drafts[index].present if id != giver]
        slot = Slot(others, self._brokers, min_rack_ids=self._min_rack_ids)
        return [id for id, broker in self._brokers.items() if id not in known and slot.refusal(broker, 0.0) is None]

    def _carry_out(self, handover: _Handover) -> None:
        index, giver, taker = handover
        slots = self._drafts[index].slots
        slots[slots.index(giver)] = taker
        del self._held[giver][index]
        self._held[taker][index] = None
        self.counts[giver] -= 1
        self.counts[taker] += 1
