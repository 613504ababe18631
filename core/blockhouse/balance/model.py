"""The values of balance: tasks with their partitions, what partitions weigh, and what a change of both moves.

Pure. Every partition is on exactly one task, always; a function that cannot keep that raises instead of losing one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from blockhouse.errors import Permanent
from blockhouse.placement.model import TopicPartition

Weights = Mapping[TopicPartition, float]
"""Bytes/s of every partition, the default where nothing is known: finite and not negative."""


class NotEnoughRoom(Permanent):
    """The tasks may not hold as many partitions as there are."""

    def __init__(self, partitions: int, tasks: int, most: int) -> None:
        super().__init__(
            f"{partitions} partitions do not fit into {tasks} tasks of at most {most}; allow more tasks, or more "
            "partitions a task",
            reason="NotEnoughRoom",
        )


class Assignment(Mapping[str, tuple[TopicPartition, ...]]):
    """Partitions by task, immutable; tasks in their order. Raises ValueError when a partition is on two tasks."""

    __slots__ = ("_tasks",)

    def __init__(self, tasks: Mapping[str, Iterable[TopicPartition]]) -> None:
        self._tasks = {task: tuple(keys) for task, keys in tasks.items()}
        if sum(map(len, self._tasks.values())) != len(self.partitions()):
            raise ValueError("a partition is assigned twice")

    def __getitem__(self, task: str) -> tuple[TopicPartition, ...]:
        return self._tasks[task]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        return f"Assignment({self._tasks!r})"

    def partitions(self) -> set[TopicPartition]:
        """Every partition that a task has."""
        return set().union(*self._tasks.values())

    def owners(self) -> dict[TopicPartition, str]:
        """The task of each partition."""
        return {key: task for task, keys in self._tasks.items() for key in keys}

    def loads(self, weights: Weights) -> dict[str, float]:
        """Bytes/s of each task."""
        return {task: sum(weights[key] for key in keys) for task, keys in self._tasks.items()}

    def moved_from(self, before: Assignment) -> set[TopicPartition]:
        """Partitions that had a task and have another one now: each of them pauses for a hand-over."""
        owners = before.owners()
        return {key for key, task in self.owners().items() if owners.get(key, task) != task}


@dataclass(frozen=True, slots=True)
class Quality:
    """How even tasks are: the heaviest against the mean; 1 is perfect, and the best there is with one giant more."""

    heaviest: float
    mean: float

    @property
    def ratio(self) -> float:
        """max/mean; 1 where there is no load at all."""
        return self.heaviest / self.mean if self.mean else 1.0


def quality(assignment: Assignment, weights: Weights) -> Quality:
    """Of an assignment that has at least one task."""
    loads = assignment.loads(weights).values()
    return Quality(max(loads), sum(loads) / len(loads))
