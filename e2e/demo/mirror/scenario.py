"""What the demonstration of a mirror does, decided by the seed alone: which partitions are hot, who dies, when. Pure.

The load is far below what this machine can do. What a task can carry is set so low that it needs one task when it is
calm and all four in a rush.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TOPIC = "events"
PARTITIONS, HOT = 24, 8
"""Partitions of the topic, and how many of them are hot at a time."""
CALM, RUSH = 16_000.0, 1_900_000.0
"""Bytes/s of every partition, and what all hot ones get together beside that."""
CAPACITY, UTILIZATION = 1_000_000, 0.7
TASKS = 4
"""Slots, and so tasks at most."""
RECORD = 1000
"""Bytes of a value."""
QUIET: tuple[str, ...] = ("00:00-23:59 UTC", "23:59-00:00 UTC")
"""All day, so that tasks are evened out whenever the cool-down is over."""

Rates = tuple[float, ...]
"""Bytes/s by partition."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run, fully decided. `rushes` are the rates of two rushes, with different hot partitions; `victim` (0 to 1)
    chooses among the tasks, and moments are seconds after what they wait for."""

    seed: int
    rushes: tuple[Rates, Rates]
    victim: float
    kill_after: float
    """A worker is killed so long after the tasks have grown."""
    change_after: float
    """Other partitions become hot so long after that."""

    @property
    def calm(self) -> Rates:
        return (CALM,) * PARTITIONS

    def task_to_kill(self, tasks: Mapping[str, int]) -> str | None:
        """One of those that hold partitions, by how many each holds; None when there is none."""
        names = sorted(name for name, held in tasks.items() if held)
        return names[int(self.victim * len(names))] if names else None


def plan(seed: int) -> Scenario:
    """The scenario of a seed."""
    chance = random.Random(seed)
    order = list(range(PARTITIONS))
    chance.shuffle(order)
    rushes = tuple(_rush(order[n * HOT : (n + 1) * HOT], chance) for n in range(2))
    return Scenario(
        seed=seed,
        rushes=(rushes[0], rushes[1]),
        victim=chance.random(),
        kill_after=chance.uniform(2, 4),
        change_after=chance.uniform(1, 3),
    )


def _rush(hot: list[int], chance: random.Random) -> Rates:
    """Skewed: the hottest partition gets about three times what the coolest hot one gets."""
    shares = {partition: chance.uniform(0.5, 1.5) for partition in hot}
    total = sum(shares.values())
    return tuple(CALM + RUSH * shares.get(partition, 0.0) / total for partition in range(PARTITIONS))


def settings() -> dict[str, Any]:
    """What the mirror's configuration has beside its clusters: quick to react, everything else as by default."""
    return {
        "delivery": "EffectivelyOnce",
        "commitInterval": "500ms",
        "targetTopics": {"interval": "2s"},
        "load": {
            "interval": "1s",
            "window": "10s",
            "default": int(CALM),
            "capacity": CAPACITY,
            "utilization": UTILIZATION,
            "maxTasks": TASKS,
        },
        "rebalance": {"cooldown": "3s", "quietHours": list(QUIET), "maxMoved": 0.5},
        "spark": {"master": f"local[{TASKS}]"},
    }
