"""Sparing moves in a forced rebuild: replicas go back to brokers that hold them already, where no broker is worse off.

Filling forgotten sets from scratch scatters replicas that could have stayed. Every exchange here lets at least one
more replica stay, keeps the constraints, and leaves replicas and leaders per broker as even as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blockhouse.placement.constraints import Slot
from blockhouse.placement.drafts import Draft
from blockhouse.placement.model import Broker, PartitionMap, ReplicaSet


def spare_moves(
    drafts: Sequence[Draft], brokers: Mapping[int, Broker], used: Mapping[int, int], min_rack_ids: int
) -> None:
    """Exchange brokers in the filled drafts, in place, until no exchange of one or two lets another replica stay.

    `used` are the replicas each broker holds now, these drafts included.
    """
    _Homing(drafts, brokers, used, min_rack_ids).run()


def unless_more_even(
    current: PartitionMap, rebuilt: PartitionMap, brokers: Mapping[int, Broker], min_rack_ids: int
) -> PartitionMap:
    """`rebuilt`, or `current` when that is valid and as even in replicas and leaders: then nothing has to move."""
    same_length = all(len(replicas) == len(rebuilt[key]) for key, replicas in current.items())
    valid = same_length and all(_is_valid(replicas, brokers, min_rack_ids) for replicas in current.values())
    return current if valid and _unevenness(current) <= _unevenness(rebuilt) else rebuilt


def _is_valid(replicas: ReplicaSet, brokers: Mapping[int, Broker], min_rack_ids: int) -> bool:
    return all(
        id in brokers
        and Slot(replicas[:position], brokers, min_rack_ids=min_rack_ids).refusal(brokers[id], 0.0) is None
        for position, id in enumerate(replicas)
    )


def _unevenness(current: PartitionMap) -> tuple[int, int]:
    """Sums of squares, first of replicas and then of leaders: less is more even."""
    held, led = current.replica_counts(), current.leader_counts()
    return sum(count * count for count in held.values()), sum(count * count for count in led.values())


class _Homing:
    """`_strangers[id]` are the drafts, by index, that the broker would have to copy."""

    def __init__(
        self, drafts: Sequence[Draft], brokers: Mapping[int, Broker], used: Mapping[int, int], min_rack_ids: int
    ) -> None:
        self._drafts = drafts
        self._brokers = brokers
        self._counts = dict(used)
        self._min_rack_ids = min_rack_ids
        self._strangers: dict[int, dict[int, None]] = {id: {} for id in brokers}
        for index, draft in enumerate(drafts):
            for id in draft.present:
                if id not in draft.former:
                    self._strangers[id][index] = None

    def run(self) -> None:
        improved = True
        while improved:
            improved = False
            for index, draft in enumerate(self._drafts):
                for stranger in [id for id in draft.present if id not in draft.former]:
                    improved |= self._send_home(index, stranger)

    def _send_home(self, index: int, stranger: int) -> bool:
        """Put a former holder in the stranger's place, and the stranger where that holder is a stranger itself.

        A stranger with more replicas than the former holder simply gives its place up, unless it leads.
        """
        draft = self._drafts[index]
        for former in draft.former:
            if former not in self._brokers or former in draft.present or not self._fits(draft, stranger, former):
                continue
            if self._counts[stranger] > self._counts[former] and draft.slots[0] != stranger:
                self._replace(index, stranger, former)
                return True
            for other in self._strangers[former]:
                if self._may_swap(draft, self._drafts[other], stranger, former):
                    self._replace(index, stranger, former)
                    self._replace(other, former, stranger)
                    return True
        return False

    def _may_swap(self, draft: Draft, other: Draft, stranger: int, former: int) -> bool:
        """Whether `other` may take the stranger for `former`, and both sit alike: leader for leader."""
        return (
            stranger not in other.present
            and (other.slots[0] == former) == (draft.slots[0] == stranger)
            and self._fits(other, former, stranger)
        )

    def _fits(self, draft: Draft, leaves: int, comes: int) -> bool:
        others = [id for id in draft.present if id != leaves]
        return Slot(others, self._brokers, min_rack_ids=self._min_rack_ids).refusal(self._brokers[comes], 0.0) is None

    def _replace(self, index: int, leaves: int, comes: int) -> None:
        draft = self._drafts[index]
        draft.slots[draft.slots.index(leaves)] = comes
        self._counts[leaves] -= 1
        self._counts[comes] += 1
        self._strangers[leaves].pop(index, None)
        if comes not in draft.former:
            self._strangers[comes][index] = None
