"""Replica sets in the making, and the last touch that makes them even.

Filling slots one after the other can end with one broker two replicas ahead: the last slots had no better choice. An
exchange afterwards puts that right; it touches only slots that were open, never a replica that stayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from blockhouse.placement.constraints import Slot
from blockhouse.placement.model import Broker, ReplicaSet, TopicPartition


@dataclass(slots=True)
class Draft:
    """A replica set being filled; `size` is in bytes.

    `slots` holds None where a broker is wanted, `open` the positions that were so at first, `leaves` who was there.
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
) -> None:
    """Exchange filled slots, in place, until no exchange brings a broker closer to one with two replicas less.

    `used` are the replicas each broker holds now, these drafts included.
    """
    held: dict[int, dict[int, Draft]] = {id: {} for id in brokers}
    for index, draft in enumerate(drafts):
        for position in draft.open:
            id = draft.slots[position]
            if id is not None:
                held[id][index] = draft
    counts = dict(used)
    while exchange := _exchange(counts, held, brokers, min_rack_ids):
        index, heavy, light = exchange
        draft = held[heavy].pop(index)
        held[light][index] = draft
        draft.slots[draft.slots.index(heavy)] = light
        counts[heavy] -= 1
        counts[light] += 1


def _exchange(
    counts: Mapping[int, int],
    held: Mapping[int, Mapping[int, Draft]],
    brokers: Mapping[int, Broker],
    min_rack_ids: int,
) -> tuple[int, int, int] | None:
    """The draft (by index) in which the first broker gives its slot to the second, or None."""
    lightest_first = sorted(counts, key=lambda id: (counts[id], id))
    for heavy in reversed(lightest_first):
        lights = [id for id in lightest_first if counts[id] <= counts[heavy] - 2]
        if not lights:
            return None
        for index, draft in held[heavy].items():
            slot = Slot([id for id in draft.present if id != heavy], brokers, min_rack_ids=min_rack_ids)
            light = next((id for id in lights if slot.refusal(brokers[id], 0.0) is None), None)
            if light is not None:
                return index, heavy, light
    return None
