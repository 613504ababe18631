"""Who leads: making preferred leaders even, and taking the lead away from brokers. Replica sets never change members.

Choosing one leader out of each replica set so that the loads are as even as the sets allow is an optimal
semi-matching of partitions and brokers: it is reached when no chain of hand-overs leads from a broker to one that
leads at least two partitions less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise

from blockhouse.placement.model import PartitionMap, ReplicaSet, TopicPartition


def lead(replicas: ReplicaSet, leader: int) -> ReplicaSet:
    """The set with `leader` first and the others in their order."""
    return (leader, *(id for id in replicas if id != leader))


def balance_leaders(current: PartitionMap, base: Mapping[int, int] | None = None) -> PartitionMap:
    """The map with leaders (and so followers) as even as the replica sets allow, least sum of squares.

    `base` counts partitions each broker leads outside this map. Leaders that need not change stay.
    """
    return _Leaders(current, base or {}).balanced()


def evacuate_leadership(
    current: PartitionMap, brokers: Collection[int], concerns: Callable[[str], bool] = lambda _: True
) -> tuple[PartitionMap, tuple[str, ...]]:
    """The map in which none of `brokers` leads a partition of the topics `concerns(topic)` accepts, and the errors.

    The first follower that is not evacuated leads instead. A partition held by evacuated brokers alone is an error
    and keeps its leader.
    """
    changes: dict[TopicPartition, ReplicaSet] = {}
    errors: list[str] = []
    for key, replicas in current.items():
        if replicas[0] not in brokers or not concerns(key.topic):
            continue
        successor = next((id for id in replicas if id not in brokers), None)
        if successor is None:
            errors.append(f"{key}: every broker that holds it ({list(replicas)}) shall be evacuated; none can lead")
        else:
            changes[key] = lead(replicas, successor)
    return current.updated(changes), tuple(errors)


class _Leaders:
    """Leaders being balanced. `_offers[a][b]` are the partitions a leads and could hand to b, in map order."""

    def __init__(self, current: PartitionMap, base: Mapping[int, int]) -> None:
        self._map = current
        self._leader = {key: replicas[0] for key, replicas in current.items()}
        self._load = {id: base.get(id, 0) for id in sorted(current.brokers())}
        self._offers: dict[int, dict[int, dict[TopicPartition, None]]] = {id: {} for id in self._load}
        for key, leader in self._leader.items():
            self._load[leader] += 1
            self._offer(key, leader)

    def balanced(self) -> PartitionMap:
        improved = True
        while improved:
            improved = False
            for broker in sorted(self._load, key=lambda id: (-self._load[id], id)):
                while chain := self._chain(broker):
                    self._hand_over(chain)
                    improved = True
        return PartitionMap({key: lead(self._map[key], leader) for key, leader in self._leader.items()})

    def _chain(self, start: int) -> list[int]:
        """Shortest chain of brokers from `start` to one leading at least two partitions less; empty if none."""
        came_from = {start: start}
        queue = deque([start])
        while queue:
            broker = queue.popleft()
            if self._load[broker] <= self._load[start] - 2:
                chain = [broker]
                while chain[-1] != start:
                    chain.append(came_from[chain[-1]])
                return chain[::-1]
            for successor in sorted(self._offers[broker]):
                if successor not in came_from and self._offers[broker][successor]:
                    came_from[successor] = broker
                    queue.append(successor)
        return []

    def _hand_over(self, chain: list[int]) -> None:
        for giver, taker in pairwise(chain):
            key = next(iter(self._offers[giver][taker]))
            self._withdraw(key, giver)
            self._leader[key] = taker
            self._offer(key, taker)
        self._load[chain[0]] -= 1
        self._load[chain[-1]] += 1

    def _offer(self, key: TopicPartition, leader: int) -> None:
        for id in self._map[key]:
            if id != leader:
                self._offers[leader].setdefault(id, {})[key] = None

    def _withdraw(self, key: TopicPartition, leader: int) -> None:
        for id in self._map[key]:
            if id != leader:
                del self._offers[leader][id][key]
