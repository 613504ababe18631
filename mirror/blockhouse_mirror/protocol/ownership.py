"""Which task may write which partition: one at any moment, whatever dies (M3). Pure; moments are seconds.

A partition leaves a task in one of two ways: the task confirms that it has ended and that all it had sent is
acknowledged; or its session is lost, and then its grant has to run out by itself and its last bytes to arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from blockhouse.placement.model import TopicPartition

GRANT_SECONDS = 10.0
"""A task that has not heard the driver for so long ends by itself, and all it holds with it."""
WIRE_SECONDS = 5.0
"""How long bytes that a dead process had sent may still be on their way to a broker."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A task may write a partition. `generation` rises with every grant, so that an old report is not taken for a new
    one."""

    task: str
    generation: int
    ending: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """What to do next: partitions to grant, with their tasks, and to ask back."""

    grant: tuple[tuple[TopicPartition, str], ...]
    revoke: tuple[tuple[TopicPartition, Grant], ...]


class Ownership:
    """The grants of one mirror. Not thread-safe."""

    def __init__(self) -> None:
        self._grants: dict[TopicPartition, Grant] = {}
        self._not_before: dict[TopicPartition, float] = {}
        self._generation = 0

    def holder(self, key: TopicPartition) -> Grant | None:
        """The grant of a partition; None while no task has it."""
        return self._grants.get(key)

    def held_by(self, task: str) -> tuple[TopicPartition, ...]:
        """The partitions that a task has, in the order of their grants."""
        return tuple(key for key, grant in self._grants.items() if grant.task == task)

    @property
    def grants(self) -> Mapping[TopicPartition, Grant]:
        return self._grants

    def changes(self, desired: Mapping[TopicPartition, str], running: Iterable[str], now: float) -> Change:
        """The way from what is held to what is desired; a partition is granted only when none holds it any more."""
        tasks = set(running)
        revoke = tuple(
            (key, grant)
            for key, grant in self._grants.items()
            if not grant.ending and desired.get(key) != grant.task and grant.task in tasks
        )
        grant = tuple(
            (key, task)
            for key, task in desired.items()
            if task in tasks and key not in self._grants and self._not_before.get(key, now) <= now
        )
        return Change(grant, revoke)

    def granted(self, key: TopicPartition, task: str) -> Grant:
        """Caller: before the task hears of it. Raises ValueError when another one holds the partition."""
        if key in self._grants:
            raise ValueError(f"{key} is held by {self._grants[key].task}")
        self._generation += 1
        self._not_before.pop(key, None)
        self._grants[key] = Grant(task, self._generation)
        return self._grants[key]

    def ending(self, key: TopicPartition) -> None:
        """The task was asked to give the partition back."""
        self._grants[key] = replace(self._grants[key], ending=True)

    def confirmed(self, key: TopicPartition, generation: int) -> bool:
        """The task has ended the partition cleanly; False for an answer to an older grant."""
        grant = self._grants.get(key)
        if grant is None or grant.generation != generation:
            return False
        del self._grants[key]
        return True

    def lost(self, task: str, now: float) -> tuple[TopicPartition, ...]:
        """The session of a task is gone: what it held is free when its grant is over and the wire is quiet."""
        keys = self.held_by(task)
        for key in keys:
            del self._grants[key]
            self.wait(key, now)
        return keys

    def wait(self, key: TopicPartition, now: float) -> None:
        """Another writer of the partition may have been alive until `now`."""
        self._not_before[key] = now + GRANT_SECONDS + WIRE_SECONDS

    def free_at(self, key: TopicPartition) -> float | None:
        """When a partition that waits for a lost task may be granted; None when it need not wait."""
        return self._not_before.get(key)
