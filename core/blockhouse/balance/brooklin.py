"""The answers of Brooklin's load-based assignment, for comparison: its count of tasks, its order, its unweighted rest.

Pure. It is used by `blockhouse mirror replay --parity` and by tests, never by a mirror.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from blockhouse.balance.model import NotEnoughRoom
from blockhouse.placement.model import TopicPartition

KB = 1024


@dataclass(frozen=True, slots=True)
class Case:
    """One input: partitions in order, KB/s by partition and by topic, tasks with what they have, and the settings."""

    partitions: Sequence[TopicPartition]
    partition_kb: Mapping[TopicPartition, float]
    topic_kb: Mapping[str, float]
    tasks: Mapping[str, Sequence[TopicPartition]]
    default_kb: float
    capacity_mb: float
    utilization_pct: float
    most_partitions: int = 0

    def known(self, key: TopicPartition) -> float | None:
        """KB/s of a partition: its own, else its topic's, each partition the whole of it; None if unknown."""
        rate = self.partition_kb.get(key)
        return self.topic_kb.get(key.topic) if rate is None else rate

    def rate(self, key: TopicPartition) -> float:
        """KB/s, the default where nothing is known."""
        rate = self.known(key)
        return self.default_kb if rate is None else rate


@dataclass(slots=True)
class Answer:
    """Tasks without the unknown partitions, their loads, and how many unknown ones each got.

    `exact` is false where equal rates or equal loads made the choice arbitrary.
    """

    tasks: dict[str, list[TopicPartition]]
    loads: dict[str, float]
    unknown: list[TopicPartition] = field(default_factory=list)
    unknown_by_task: dict[str, int] = field(default_factory=dict)
    exact: bool = True


def estimated_tasks(case: Case) -> int:
    """Tasks for the whole load, at most one a partition. It counts partitions that are gone while a task has them."""
    partitions = set(case.partitions).union(*case.tasks.values())
    total = sum(map(case.rate, partitions))
    usable = case.capacity_mb * KB * case.utilization_pct / 100
    return min(len(partitions), math.ceil(total / usable))


def assign(case: Case) -> Answer:
    """Keep what exists, put known partitions on the lightest task, deal out the unknown ones without a weight.

    Raises NotEnoughRoom.
    """
    if case.most_partitions and len(case.tasks) * case.most_partitions < len(case.partitions):
        raise NotEnoughRoom(len(case.partitions), len(case.tasks), case.most_partitions)
    existing = set(case.partitions)
    kept = {task: [key for key in keys if key in existing] for task, keys in case.tasks.items()}
    answer = Answer(kept, {task: sum(map(case.rate, keys)) for task, keys in kept.items()})
    assigned = {key for keys in kept.values() for key in keys}
    fresh = [key for key in case.partitions if key not in assigned]
    answer.unknown = sorted(key for key in fresh if case.known(key) is None)
    _place_known(answer, [key for key in fresh if case.known(key) is not None], case)
    answer.unknown_by_task = _dealt(kept, len(answer.unknown), case.most_partitions)
    return answer


def _place_known(answer: Answer, known: Sequence[TopicPartition], case: Case) -> None:
    """The heaviest first, each on the lightest task that has room."""
    most = case.most_partitions or len(case.partitions)
    heap = [(answer.loads[task], n, task) for n, task in enumerate(answer.tasks) if len(answer.tasks[task]) < most]
    heapq.heapify(heap)
    ordered = sorted(known, key=lambda key: (-case.rate(key), key.topic, str(key.partition)))
    for n, key in enumerate(ordered):
        load, order, task = heapq.heappop(heap)
        equal_tasks = bool(heap) and heap[0][0] == load
        equal_rates = n + 1 < len(ordered) and case.rate(ordered[n + 1]) == case.rate(key)
        answer.exact = answer.exact and not equal_tasks and not equal_rates
        answer.tasks[task].append(key)
        answer.loads[task] = load + case.rate(key)
        if len(answer.tasks[task]) < most:
            heapq.heappush(heap, (answer.loads[task], order, task))


def _dealt(tasks: Mapping[str, Sequence[TopicPartition]], unknown: int, most: int) -> dict[str, int]:
    """Unknown partitions by task, one after the other to those with room."""
    dealt = dict.fromkeys(tasks, 0)
    while unknown:
        for task in tasks:
            if unknown and (not most or len(tasks[task]) + dealt[task] < most):
                dealt[task] += 1
                unknown -= 1
    return dealt
