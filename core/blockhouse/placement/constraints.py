"""What a broker must satisfy to take one replica slot. It decides, it never chooses and never changes anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from blockhouse.placement.model import Broker


class Refusal(StrEnum):
    """Why a broker may not take a slot; the text finishes the sentence "n brokers ..."."""

    IN_SET = "already hold a replica of it"
    RACK_TAKEN = "are in a rack that already holds one"
    NO_SPACE = "lack the free space"


class Slot:
    """One free place in a replica set.

    `taken` are the brokers already in the set: those chosen before and those that stay at later positions. With
    `min_rack_ids` 0 every rack may be used once; with k > 0 any rack may be used as soon as k racks are present.
    `need` is in bytes.
    """

    __slots__ = ("need", "racks", "taken")

    def __init__(
        self, taken: Iterable[int], brokers: Mapping[int, Broker], *, min_rack_ids: int = 0, need: float = 0.0
    ) -> None:
        self.taken = frozenset(taken)
        racks = {brokers[id].rack for id in self.taken if id in brokers} - {""}
        any_rack = 0 < min_rack_ids <= len(racks)
        self.racks = frozenset[str]() if any_rack else frozenset(racks)
        self.need = need

    def refusal(self, broker: Broker, free: float) -> Refusal | None:
        """Why `broker`, with `free` bytes left, may not take the slot; None when it may."""
        if broker.id in self.taken:
            return Refusal.IN_SET
        if broker.rack in self.racks:
            return Refusal.RACK_TAKEN
        if free < self.need:
            return Refusal.NO_SPACE
        return None

    def explain(self, candidates: Iterable[tuple[Broker, float]]) -> str:
        """Why none of the candidates (broker, free bytes) may take the slot."""
        refusals = Counter(why for broker, free in candidates if (why := self.refusal(broker, free)))
        if not refusals:
            return "no broker is given"
        return ", ".join(
            f"{count} {why}" + (f" of {self.need:.0f} bytes" if why is Refusal.NO_SPACE else "")
            for why, count in sorted(refusals.items())
        )
