"""Partitions that no assignment helps: each is too much for a task, or late although its task has nothing else.

Pure. They are named with advice; nothing is done to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from blockhouse.balance.count import TaskLimits
from blockhouse.balance.model import Assignment, Weights
from blockhouse.placement.model import TopicPartition

SHOWN = 10


@dataclass(frozen=True, slots=True)
class Offending:
    """One partition: its bytes/s, its share of what a task can carry (above 1: too much), and what to do."""

    partition: TopicPartition
    rate: float
    share: float
    advice: str


def offending(
    assignment: Assignment,
    weights: Weights,
    limits: TaskLimits,
    late: Iterable[TopicPartition] = (),
    counts: Mapping[str, int] | None = None,
) -> list[Offending]:
    """All of them, the heaviest first; `late` are those behind that a rebalance would not help.

    `counts` are topics' numbers of partitions, for the advice; without it those in `weights` are counted.
    """
    alone = {keys[0] for keys in assignment.values() if len(keys) == 1}
    stuck = {key for key in late if key in alone}
    found = {key for key, weight in weights.items() if weight > limits.usable} | (stuck & weights.keys())
    topics = counts or _counts(weights)
    totals = _totals(weights, {key.topic for key in found})
    return [
        Offending(
            key,
            weights[key],
            weights[key] / limits.usable,
            _advice(key, weights[key], limits, topics.get(key.topic, 1), totals[key.topic]),
        )
        for key in sorted(found, key=lambda key: (-weights[key], key))
    ]


def _advice(key: TopicPartition, rate: float, limits: TaskLimits, partitions: int, total: float) -> str:
    """More partitions help where the topic is even; a better key where this one has far more than its share."""
    if rate <= limits.usable:
        return "it is late though its task has nothing else: raise the task's capacity, or check source and target"
    share = rate / total if total else 1.0
    if partitions > 1 and share > 2 / partitions:
        return (
            f"it has {share:.0%} of topic {key.topic}, {partitions} partitions would have {1 / partitions:.0%} each: "
            "choose a key that spreads the records"
        )
    more = -(-total // limits.usable)
    return f"give topic {key.topic} at least {more:.0f} partitions, or raise the task's capacity"


def _counts(weights: Weights) -> dict[str, int]:
    counts: dict[str, int] = {}
    for key in weights:
        counts[key.topic] = counts.get(key.topic, 0) + 1
    return counts


def _totals(weights: Weights, topics: set[str]) -> dict[str, float]:
    totals = dict.fromkeys(topics, 0.0)
    for key, weight in weights.items():
        if key.topic in topics:
            totals[key.topic] += weight
    return totals
