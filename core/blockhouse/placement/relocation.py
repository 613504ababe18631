"""The moves one tolerance allows: who gives which partition to whom. It knows no options, only numbers.

Everything is in bytes of free space. The sum over all brokers never changes, so neither does their mean.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, pstdev

from blockhouse.placement.constraints import Slot
from blockhouse.placement.model import Broker, PartitionMap, ReplicaSet, Sizes, TopicPartition
from blockhouse.placement.ranking import ByFreeSpace

_Held = list[tuple[float, int, TopicPartition]]


@dataclass(frozen=True, slots=True)
class Setting:
    """What every attempt starts from. `limit` counts partitions a visit considers, `min_size` is their least size."""

    current: PartitionMap
    cluster: Mapping[int, Broker]
    sizes: Sizes
    free: Mapping[int, float]
    targets: tuple[int, ...]
    limit: int
    min_size: float
    rack_local: bool
    min_rack_ids: int

    def largest_first(self) -> dict[int, _Held]:
        """For each target the partitions it may give away, largest first, as (-size, number, partition)."""
        held: dict[int, _Held] = {id: [] for id in self.targets}
        for key, replicas in self.current.items():
            if self.sizes[key] >= self.min_size:
                for id in replicas:
                    if id in held:
                        held[id].append((-self.sizes[key], key.partition, key))
        for partitions in held.values():
            partitions.sort()
        return held


def spread(free: Mapping[int, float]) -> tuple[float, float]:
    """Range and population deviation of free space, in bytes."""
    return max(free.values()) - min(free.values()), pstdev(free.values())


class Attempt:
    """The moves found with one tolerance.

    `sets` are the changed replica sets, `free` what the brokers have left. `valid_below` is the least tolerance at
    which a refused move would be accepted: any tolerance from this one up to there finds exactly the same moves.
    """

    def __init__(self, setting: Setting, tolerance: float) -> None:
        self._setting = setting
        self.tolerance = tolerance
        self.valid_below = float("inf")
        self.free = dict(setting.free)
        self.sets: dict[TopicPartition, ReplicaSet] = {}
        self._mean = fmean(space for space in self.free.values() if space > 0)
        self._most = self._mean * (1 + tolerance)
        self._least = self._mean * (1 - tolerance)
        self._held = setting.largest_first()
        self._destinations = self._rank_destinations()
        self._run()
        self.spread = spread(self.free)

    def improves_on(self, free: Mapping[int, float]) -> bool:
        """Whether the moves make the range or the deviation smaller than it was."""
        before = spread(free)
        return self.spread[0] < before[0] or self.spread[1] < before[1]

    def _rank_destinations(self) -> dict[int, ByFreeSpace]:
        """For each target the brokers that may take its partitions, freest first."""
        cluster, targets = self._setting.cluster, self._setting.targets
        others = [id for id in self.free if id not in set(targets)]
        if not self._setting.rack_local:
            return dict.fromkeys(targets, ByFreeSpace(cluster, self.free, others))
        racks = {
            rack: ByFreeSpace(cluster, self.free, [id for id in others if cluster[id].rack == rack])
            for rack in sorted({cluster[id].rack for id in targets})
        }
        return {id: racks[cluster[id].rack] for id in targets}

    def _run(self) -> None:
        """Visit the targets in turn; stop at the end of a round once as many visits as targets found no move."""
        idle = 0
        while idle < len(self._setting.targets):
            for source in self._setting.targets:
                idle += not self._visit(source)

    def _visit(self, source: int) -> bool:
        """Move the largest partition that fits from `source`; False when none does."""
        held, ranking = self._held[source], self._destinations[source]
        last = min(len(held), self._setting.limit)
        for index in range(self._first_that_fits(source, last), last):
            negated, _, key = held[index]
            replicas = self.sets.get(key) or self._setting.current[key]
            destination = ranking.choose(self._slot(key, replicas, source))
            if destination is None or not self._accepts(source, destination, -negated):
                continue
            del held[index]
            self.free[source] -= negated
            ranking.place(destination, -negated)
            self.sets[key] = tuple(destination if id == source else id for id in replicas)
            return True
        return False

    def _first_that_fits(self, source: int, last: int) -> int:
        """Index of the first partition neither the source nor the freest destination is too close to the mean for.

        Partitions are sorted by size, so all before it would be refused whatever their replica sets.
        """
        most_free = self._destinations[source].most_free
        fits = min(self._most - self.free[source], most_free - self._least)
        index = min(bisect_left(self._held[source], (-fits,)), last)
        if index > 0:
            smallest = -self._held[source][index - 1][0]
            self._remember_refusal(self.free[source] + smallest, most_free - smallest)
        return index

    def _slot(self, key: TopicPartition, replicas: ReplicaSet, source: int) -> Slot:
        # Replicas that this plan takes away count too: until it is carried out, they are where they were.
        others = {*replicas, *self._setting.current[key]} - {source}
        if self._setting.rack_local:  # the same rack again: it collides with nothing the source did not
            return Slot(others, {})
        return Slot(others, self._setting.cluster, min_rack_ids=self._setting.min_rack_ids)

    def _accepts(self, source: int, destination: int, size: float) -> bool:
        given, taken = self.free[source] + size, self.free[destination] - size
        if given <= self._most and taken >= self._least:
            return True
        self._remember_refusal(given, taken)
        return False

    def _remember_refusal(self, given: float, taken: float) -> None:
        needed = max(given / self._mean - 1, 1 - taken / self._mean)
        self.valid_below = min(self.valid_below, max(needed - 1e-9, self.tolerance))
