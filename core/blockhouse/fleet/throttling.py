"""The throttler at work on a live cluster: look, decide with `blockhouse.throttle`, carry the effects out in order.

It decides nothing itself. Effects are carried out one by one and every one is repeatable: a process that ends between
two of them leaves a cluster that is throttled or clean, and the next look continues. What it must keep across restarts
is in a store; the rates themselves are in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import structlog

from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet import throttle_seen as seen_as
from blockhouse.fleet.growth import Growth, Sized, growth
from blockhouse.fleet.model import Move, PartitionState, ThrottledFleet
from blockhouse.fleet.throttle_context import Context, Tally
from blockhouse.load.model import Sample
from blockhouse.placement.model import ReplicaSet, TopicPartition
from blockhouse.throttle.model import (
    ClearList,
    ClearRate,
    Effect,
    Event,
    ForgetOverride,
    Known,
    Load,
    MoveSeen,
    Observed,
    Overrides,
    Ownership,
    Place,
    Remember,
    Role,
    SetList,
    SetRate,
)
from blockhouse.throttle.rates import fault_of
from blockhouse.throttle.report import Row, rows
from blockhouse.throttle.step import step
from blockhouse.throttle.wording import LOAD_UNAVAILABLE

log = structlog.get_logger(__name__)

RATES = tuple(role.rate_setting for role in Role)
LISTS = tuple(role.list_setting for role in Role)
Concerns = Callable[[TopicPartition, ReplicaSet], bool]
CONFIRM_SECONDS = 0.5
"""A broker answers for about so long what was before a change."""
Targets = Mapping[TopicPartition, ReplicaSet]


def toward(plan: Targets) -> Concerns:
    """Moves to the replicas of the plan."""
    return lambda key, target: plan.get(key) == target


class Throttler:
    """Of the moves that `concerns` accepts (partition, where it goes), or of all. Loses nothing when it is dropped."""

    def __init__(self, fleet: ThrottledFleet, context: Context, concerns: Concerns | None = None) -> None:
        self._fleet = fleet
        self._context = context
        self._concerns = concerns
        self._known = Known(ownership=context.store.ownership())
        self._sized: Sized | None = None
        self._growth = Growth()
        self._sample: Sample | None = None
        self._received = 0.0
        self._unavailable = ""
        self.rows: tuple[Row, ...] = ()
        self.unconfirmed = False
        """Whether something of ours, on a broker that is alive, was not yet seen to be as it should."""

    @property
    def tally(self) -> Tally:
        return self._context.tally

    def before_start(self, starting: Targets) -> None:
        """Throttle partitions that are about to move. Raises as a Fleet: then they must not be moved."""
        with self._context.store.exclusive():
            self._advance(starting, adjust=False)
        if self._sized is None:  # the first round knows then what is written, and reports a stall an interval earlier
            self._sized = Sized(self._context.clock(), self._fleet.storage())

    def round(self, *, change: bool = True) -> bool:
        """One interval: measure, decide, and with `change` act. Returns whether anything moves, or is ours."""
        if not change:
            return self._advance({}, adjust=True, change=False)
        with self._context.store.exclusive():
            return self._advance({}, adjust=True)

    def forecast(self, starting: Targets) -> tuple[Row, ...]:
        """How `starting` would be throttled if it began now; changes nothing. Like `round`, to be asked at intervals:
        what is written to partitions is known from the second time on."""
        self._advance(starting, adjust=True, change=False)
        found, self.rows = self.rows, ()
        return found

    def clear(self, *, everything: bool = False) -> bool:
        """Remove what is ours although it may be moving, with `everything` also what others set.

        Returns whether anything is left to confirm: then call it again, without `everything`, in half a second. What
        is on brokers that are not alive is left.
        """
        with self._context.store.exclusive():
            return self._clear(everything=everything)

    def _clear(self, *, everything: bool) -> bool:
        self._known = replace(self._known, ownership=self._context.store.ownership())
        partitions = self._partitions()
        if everything:
            self._known = replace(self._known, ownership=self._all_there_is({key.topic for key in partitions}))
            self._context.store.remember(self._known.ownership)
        observed = self._observe({}, partitions, Overrides(), adjust=False)
        outcome = step(observed, self._known, self._context.settings)
        self._carry_out(outcome.effects)
        self._known = outcome.known
        return bool(self._known.ownership.lists) or any(id in observed.live for id, _ in self._known.ownership.rates)

    def _all_there_is(self, topics: Collection[str]) -> Ownership:
        rates = seen_as.rates(self._fleet.broker_settings(self._fleet.brokers(), RATES))
        found = seen_as.lists(self._fleet.topic_settings(topics, LISTS))
        return Ownership({place: (rate,) for place, rate in rates.items()}, found)

    def _advance(self, starting: Targets, *, adjust: bool, change: bool = True) -> bool:
        # Another command may have changed the record: what it wrote is ours too.
        self._known = replace(self._known, ownership=self._context.store.ownership())
        moves = {key: move for key, move in self._fleet.moves().items() if self._concerned(key, move)}
        overrides = self._context.store.overrides()
        if not moves and not starting and not self._known.ownership:
            self.rows, self.unconfirmed, self._sized = (), False, None
            return False
        partitions = self._partitions()
        seen = {key: seen_as.moving(move, partitions[key]) for key, move in moves.items() if key in partitions}
        seen |= {
            key: seen_as.starting(target, partitions[key])
            for key, target in starting.items()
            if key in partitions and key not in seen
        }
        if adjust:
            self._measure(seen)
        observed = self._observe(seen, partitions, overrides, adjust=adjust)
        outcome = step(observed, self._known, self._context.settings)
        if adjust and change:
            self._count_faults(observed, outcome.decisions)
        self.rows = rows(observed, outcome.decisions, self._growth.copied)
        owned = outcome.known.ownership
        self.unconfirmed = bool(owned.lists) or any(broker in observed.live for broker, _ in owned.rates)
        if change:
            self._carry_out(outcome.effects)
            self._known = outcome.known
        return bool(moves) or bool(self._known.ownership)

    def _partitions(self) -> Mapping[TopicPartition, PartitionState]:
        """Lists of topics that are gone are forgotten: what is only hidden must not be taken for gone."""
        found = self._fleet.partitions()
        absent = {topic for topic, _ in self._known.ownership.lists} - {key.topic for key in found}
        if absent:
            self._fleet.require_visible(absent)
        return found

    def _concerned(self, key: TopicPartition, move: Move) -> bool:
        return self._concerns is None or self._concerns(key, move.target)

    def _measure(self, seen: Mapping[TopicPartition, MoveSeen]) -> None:
        now = Sized(self._context.clock(), self._fleet.storage())
        self._growth = growth(seen, self._sized, now)
        self._sized = now
        if self._context.loads is None:
            return
        trouble = ""
        try:
            sample = self._context.loads.sample()
            if sample is not None:
                self._sample, self._received = sample, self._context.clock()
        except (Retryable, Permanent) as error:  # what it reported last grows old, and counts as missing then
            trouble = f"the source of load {self._context.loads.name} gives no figures: {error}"
            log.warning("load_unavailable", source=self._context.loads.name, error=str(error))
        if trouble and not self._unavailable:
            self._context.report(Event(LOAD_UNAVAILABLE, trouble, warning=True))
        self._unavailable = trouble

    def _observe(
        self,
        seen: Mapping[TopicPartition, MoveSeen],
        partitions: Mapping[TopicPartition, PartitionState],
        overrides: Overrides,
        *,
        adjust: bool,
    ) -> Observed:
        owned, now = self._known.ownership, self._context.wall()
        live, topics = frozenset(self._fleet.brokers()), frozenset(key.topic for key in partitions)
        listed = ({key.topic for key in seen} | {topic for topic, _ in owned.lists}) & topics
        concerned = {id for move in seen.values() for id in move.replicas} | {broker for broker, _ in owned.rates}
        sample = self._sample
        written = dict(self._growth.written)
        if sample is not None:
            written |= {key: sample.partitions[key].bytes for key in seen if key in sample.partitions}
        return Observed(
            moves=seen,
            live=live,
            topics=topics,
            rates=seen_as.rates(self._fleet.broker_settings(concerned & live, RATES)),
            lists=seen_as.lists(self._fleet.topic_settings(listed, LISTS)),
            loads=self._loads(sample, now, seen) if sample else {},
            write_rates=written,
            remaining=self._growth.remaining,
            overrides=overrides,
            at=now,
            adjust=adjust,
        )

    def _loads(self, sample: Sample, now: float, seen: Mapping[TopicPartition, MoveSeen]) -> dict[int, Load]:
        """The time of day may jump: no sample is younger than the time it has been here."""
        age = max(sample.age(now), self._context.clock() - self._received)
        copied = {replica for replica, speed in self._growth.copied.items() if speed > 0}
        return seen_as.loads(sample, age, copied, seen)

    def _count_faults(self, observed: Observed, decided: Collection[Place]) -> None:
        """One for each broker, however many roles it has."""
        settings, faults = self._context.settings, dict[int, str]()
        for broker, role in decided:
            fault = fault_of(observed.loads.get(broker), role, settings.capacity.of(broker), settings)
            if fault is not None:
                faults[broker] = fault.value
        self._context.tally.failures.update(faults.items())

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        """In order. A removal that is refused keeps no other thing from being removed; it is raised at the end."""
        context, refused = self._context, list[Permanent]()
        for effect in effects:
            if not isinstance(effect, Event):
                context.check()
            match effect:
                case Remember():
                    context.store.remember(effect.ownership)
                    self._known = replace(self._known, ownership=effect.ownership)
                case SetRate() | SetList():
                    self._write(effect)
                case ClearRate() | ClearList():
                    try:
                        self._write(effect)
                    except Permanent as error:
                        refused.append(error)
                case ForgetOverride():
                    context.store.forget_override(effect.broker)
                case Event():
                    context.report(effect)
        if refused:
            raise refused[0]

    def _write(self, effect: SetRate | ClearRate | SetList | ClearList) -> None:
        if isinstance(effect, SetRate | ClearRate):
            with self._context.tally.writing("rate"):
                self._write_rate(effect)
        else:
            with self._context.tally.writing("list"):
                self._write_list(effect)

    def _write_rate(self, effect: SetRate | ClearRate) -> None:
        name = effect.role.rate_setting
        if isinstance(effect, SetRate):
            self._fleet.change_broker(effect.broker, {name: str(effect.rate)})
        else:
            self._fleet.change_broker(effect.broker, {}, [name])

    def _write_list(self, effect: SetList | ClearList) -> None:
        name = effect.role.list_setting
        if isinstance(effect, SetList):
            self._fleet.change_topic(effect.topic, {name: ",".join(sorted(effect.entries))})
        else:
            self._fleet.change_topic(effect.topic, {}, [name])
