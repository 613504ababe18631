"""When a running assignment is changed: by new partitions, by lag, in quiet hours, by another count, on request.

Pure. It must never move a partition that a cool-down protects, and never for less than it is worth: a hand-over pauses
what moves. New and gone partitions move nothing else and wait for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from blockhouse.balance.model import Assignment, Weights, quality
from blockhouse.balance.quiet import QuietHours, is_quiet
from blockhouse.balance.sticky import remaining, renew
from blockhouse.placement.model import TopicPartition

WORTH = 0.05
"""A rebalance for lag must make the heaviest task at least this much lighter."""
LATE_LOOKS = 2
AIM = 0.5
"""A rebalance makes tasks even to this share of the tolerance: the rest of it is for what drifts until the next one.

A step that aimed at the tolerance itself would leave tasks at its edge, and the first drift would carry them over it.
"""


class Cause(StrEnum):
    """Why an assignment changed."""

    PARTITIONS = "PartitionsChanged"
    LAG = "Lag"
    QUIET_HOURS = "QuietHours"
    COUNT = "CountChanged"
    REQUEST = "Requested"


@dataclass(frozen=True, slots=True)
class RebalanceSettings:
    """`on_lag` and `cooldown` in seconds, `tolerance` and `most_moved` as shares of one.

    `tolerance` is meant to hold between rebalances, too; each makes tasks even to half of it.
    """

    tolerance: float = 0.10
    on_lag: float = 60.0
    cooldown: float = 900.0
    quiet_hours: tuple[QuietHours, ...] = ()
    most_moved: float = 0.02
    most_partitions: int = 500


@dataclass(frozen=True, slots=True)
class RebalanceState:
    """What a decision needs of those before: the moment of the last one that moved partitions, and who was late."""

    moved_at: datetime | None = None
    late_looks: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen now. `tasks` are those from now on; `lags` are seconds a partition is behind; `guessed` are the
    partitions whose weight is a default.
    """

    now: datetime
    weights: Weights
    tasks: Sequence[str]
    lags: Mapping[TopicPartition, float] = field(default_factory=dict)
    requested: bool = False
    guessed: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """The assignment from now on and why; `causes` is empty where nothing changed.

    `helpless` are late partitions that no better assignment would help: see `offending`.
    """

    assignment: Assignment
    causes: tuple[Cause, ...]
    moved: frozenset[TopicPartition]
    helpless: tuple[TopicPartition, ...] = ()


def decide(
    current: Assignment, look: Look, settings: RebalanceSettings, state: RebalanceState
) -> tuple[Decision, RebalanceState]:
    """What to do after one more look. Raises NotEnoughRoom when the partitions fit no task."""
    causes: list[Cause] = []
    state = replace(state, late_looks=_late(look.lags, settings.on_lag, state.late_looks))
    resized = set(look.tasks) != set(current)
    if resized:
        causes.append(Cause.COUNT)
    elif current.partitions() != look.weights.keys():
        causes.append(Cause.PARTITIONS)
    # What has no task is placed, all else stays where it is.
    base = _renewed(current, look, settings, moves=0)
    chosen, cause, helpless = _rebalanced(base, look, settings, state, resized=resized)
    if cause is not None:
        causes.append(cause)
    moved = chosen.moved_from(current)
    if moved:
        state = replace(state, moved_at=look.now, late_looks={})
    return Decision(chosen, tuple(dict.fromkeys(causes)), frozenset(moved), helpless), state


def tasks_for(current: Assignment, weights: Weights, count: int) -> list[str]:
    """Names of `count` tasks: those that exist as far as possible, new ones by the lowest free number."""
    if count <= len(current):
        return remaining(current, weights, count)
    names, number = list(current), 0
    while len(names) < count:
        if (name := f"task{number}") not in current:
            names.append(name)
        number += 1
    return names


def _rebalanced(
    base: Assignment, look: Look, settings: RebalanceSettings, state: RebalanceState, *, resized: bool
) -> tuple[Assignment, Cause | None, tuple[TopicPartition, ...]]:
    """The assignment after the stable step, if anything calls for one; the cause; late partitions it cannot help."""

    if resized or look.requested:
        return _renewed(base, look, settings), Cause.REQUEST if look.requested else Cause.COUNT, ()
    cool = state.moved_at is None or (look.now - state.moved_at).total_seconds() >= settings.cooldown
    late = tuple(sorted(key for key, looks in state.late_looks.items() if looks >= LATE_LOOKS))
    if not cool:
        return base, None, ()
    if late:
        better = _renewed(base, look, settings)
        before, after = quality(base, look.weights).heaviest, quality(better, look.weights).heaviest
        if after <= before * (1 - WORTH):
            return better, Cause.LAG, ()
        return base, None, late
    if is_quiet(settings.quiet_hours, look.now):
        moves = math.ceil(settings.most_moved * len(look.weights))  # rounded up: few partitions move, too
        better = _renewed(base, look, settings, moves)
        if better.moved_from(base):
            return better, Cause.QUIET_HOURS, ()
    return base, None, ()


def _renewed(current: Assignment, look: Look, settings: RebalanceSettings, moves: int | None = None) -> Assignment:
    aim = AIM * settings.tolerance
    return renew(current, look.tasks, look.weights, aim, settings.most_partitions, moves, look.guessed)


def _late(
    lags: Mapping[TopicPartition, float], on_lag: float, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Looks in a row in which each partition was too late."""
    return {key: before.get(key, 0) + 1 for key in _too_late(lags, on_lag)}


def _too_late(lags: Mapping[TopicPartition, float], on_lag: float) -> Iterable[TopicPartition]:
    return (key for key, lag in lags.items() if lag > on_lag)
