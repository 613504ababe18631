"""Load becomes tasks and their partitions: what is measured is weighed by the rules of `blockhouse.balance`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from blockhouse.balance.count import CountState, Needed, TaskLimits, needed, scaled
from blockhouse.balance.model import Assignment, Quality, quality
from blockhouse.balance.offending import Offending, offending
from blockhouse.balance.quiet import QuietHours, is_quiet
from blockhouse.balance.triggers import (
    Cause,
    Decision,
    Look,
    RebalanceSettings,
    RebalanceState,
    decide,
    tasks_for,
)
from blockhouse.config.mirror import MirrorConfig
from blockhouse.load.history import Window
from blockhouse.load.kept import KeptHistory
from blockhouse.load.model import RateSource, Sample
from blockhouse.placement.model import TopicPartition


@dataclass(slots=True)
class Rebalances:
    """How often the assignment changed, by cause, and how many partitions moved."""

    by_cause: dict[Cause, int] = field(default_factory=dict)
    moved: int = 0


class Assigner:
    """The assignment of one mirror. Not thread-safe."""

    def __init__(self, config: MirrorConfig, slots: int) -> None:
        load, rebalance = config.load, config.rebalance
        self.slots = slots
        self.limits = TaskLimits(
            capacity=load.capacity,
            utilization=load.utilization,
            most_partitions=load.max_partitions,
            fewest=min(load.min_tasks, slots),
            most=min(load.max_tasks, slots),
        )
        self.capped_by = ""
        """What keeps the number of tasks from what the load asks for: Min, Max or Slots; empty when nothing does."""
        self.assignment = Assignment({})
        self.weights: dict[TopicPartition, float] = {}
        self.sources: dict[TopicPartition, RateSource] = {}
        """From what each weight is."""
        self.sampled_at: float | None = None
        """Unix time of the newest sample; None while nothing was measured."""
        self.rebalances = Rebalances()
        self.offending: tuple[Offending, ...] = ()
        self._config = config
        self.history = KeptHistory(interesting=config.topics.matches)
        self._settings = RebalanceSettings(
            tolerance=load.tolerance,
            on_lag=rebalance.on_lag,
            cooldown=rebalance.cooldown,
            quiet_hours=tuple(map(QuietHours.parse, rebalance.quiet_hours)),
            most_moved=rebalance.max_moved,
            most_partitions=load.max_partitions,
        )
        self._state = RebalanceState()
        self._count = CountState()

    def measured(self, sample: Sample) -> None:
        """One more sample of the source's load. Raises Permanent for one of another cluster."""
        self.history.add(sample)
        self.sampled_at = sample.at

    def decide(
        self, partitions: frozenset[TopicPartition], lags: Mapping[TopicPartition, float], *, requested: bool = False
    ) -> Decision:
        """The assignment from now on; call it once a look. `lags` in seconds. Raises NotEnoughRoom."""
        now, moment = time.time(), datetime.now(UTC)
        load = self._config.load
        rates = self.history.rates(partitions, Window(load.window), now, load.default)
        expected = self.history.same_hours(partitions, now)
        # What this hour was on other days comes again: a count that followed the last hours alone would be late.
        self.weights = {key: max(rate.bytes, expected.get(key, 0.0)) for key, rate in rates.items()}
        self.sources = {key: rate.source for key, rate in rates.items()}
        guessed = frozenset(key for key, rate in rates.items() if rate.source is RateSource.DEFAULT)
        count = self._tasks(moment)
        look = Look(
            now=moment,
            weights=self.weights,
            tasks=tasks_for(self.assignment, self.weights, count),
            lags=lags,
            requested=requested,
            guessed=guessed,
        )
        decision, self._state = decide(self.assignment, look, self._settings, self._state)
        self.assignment = decision.assignment
        for cause in decision.causes:
            self.rebalances.by_cause[cause] = self.rebalances.by_cause.get(cause, 0) + 1
        self.rebalances.moved += len(decision.moved)
        self.offending = tuple(offending(self.assignment, self.weights, self.limits, decision.helpless))
        return decision

    def quality(self) -> Quality | None:
        """How even the tasks are; None without any."""
        return quality(self.assignment, self.weights) if self.assignment else None

    def _tasks(self, moment: datetime) -> int:
        asked = needed(self.weights, self.limits)
        self.capped_by = self._cap(asked)
        if not self.assignment:
            return asked.tasks
        moved_at = self._state.moved_at
        cool = moved_at is None or (moment - moved_at).total_seconds() >= self._settings.cooldown
        may_shrink = cool or is_quiet(self._settings.quiet_hours, moment)
        count, self._count = scaled(len(self.assignment), asked, self._count, may_shrink=may_shrink)
        return count

    def _cap(self, asked: Needed) -> str:
        if asked.capped_by is None:
            return ""
        by_slots = asked.capped_by.value == "Max" and self.slots < self._config.load.max_tasks
        return "Slots" if by_slots else asked.capped_by.value
