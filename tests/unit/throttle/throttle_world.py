"""A small Kafka cluster of throttle settings, to which effects are applied one by one; others write into it too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from blockhouse.placement.model import TopicPartition
from blockhouse.throttle.model import (
    ClearList,
    ClearRate,
    Effect,
    Known,
    ListPlace,
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
    Settings,
)
from blockhouse.throttle.step import Outcome, step


@dataclass
class World:
    """`stored` is all that survives a crash; `foreign_*` is what others set and must be found as they left it."""

    settings: Settings
    live: set[int] = field(default_factory=lambda: {1, 2, 3, 4})
    topics: set[str] = field(default_factory=lambda: {"t", "u"})
    moves: dict[TopicPartition, MoveSeen] = field(default_factory=dict)
    rates: dict[Place, int] = field(default_factory=dict)
    lists: dict[ListPlace, frozenset[str]] = field(default_factory=dict)
    foreign_rates: dict[Place, int] = field(default_factory=dict)
    foreign_lists: dict[ListPlace, frozenset[str]] = field(default_factory=dict)
    stored: Ownership = field(default_factory=Ownership)
    known: Known = field(default_factory=Known)
    loads: dict[int, Load] = field(default_factory=dict)
    write_rates: dict[TopicPartition, float] = field(default_factory=dict)
    overrides: Overrides = field(default_factory=Overrides)
    at: float = 0.0

    def observed(self, extra: Mapping[TopicPartition, MoveSeen] | None = None, *, adjust: bool = True) -> Observed:
        return Observed(
            moves={**self.moves, **(extra or {})},
            live=frozenset(self.live),
            topics=frozenset(self.topics),
            rates={place: rate for place, rate in self.rates.items() if place[0] in self.live},
            lists={place: entries for place, entries in self.lists.items() if place[0] in self.topics},
            loads=dict(self.loads),
            write_rates=dict(self.write_rates),
            overrides=self.overrides,
            at=self.at,
            adjust=adjust,
        )

    def stale(self, before: World) -> World:
        """This world with the settings that brokers had `before`, as they may still answer for a moment."""
        return replace(self, rates=dict(before.rates), lists=dict(before.lists))

    def decide(self, extra: Mapping[TopicPartition, MoveSeen] | None = None, *, adjust: bool = True) -> Outcome:
        return step(self.observed(extra, adjust=adjust), self.known, self.settings)

    def carry_out(self, outcome: Outcome, cut: int | None = None) -> bool:
        """Apply the effects up to `cut`; whether that was all of them. Then the process lives on, or has died."""
        effects = outcome.effects if cut is None else outcome.effects[:cut]
        for effect in effects:
            self.apply(effect)
        whole = len(effects) == len(outcome.effects)
        self.known = outcome.known if whole else Known(ownership=self.stored)
        return whole

    def settle(self) -> Outcome:
        outcome = self.decide()
        self.carry_out(outcome)
        return outcome

    def apply(self, effect: Effect) -> None:
        match effect:
            case Remember():
                self.stored = effect.ownership
            case SetRate():
                assert effect.broker in self.live, "T8: written to a dead broker"
                self.rates[effect.broker, effect.role] = effect.rate
            case ClearRate():
                assert effect.broker in self.live, "T8: written to a dead broker"
                self.rates.pop((effect.broker, effect.role), None)
            case SetList():
                assert effect.topic in self.topics, "written to a topic that is gone"
                self.lists[effect.topic, effect.role] = effect.entries
            case ClearList():
                assert effect.topic in self.topics, "written to a topic that is gone"
                self.lists.pop((effect.topic, effect.role), None)
            case _:
                pass

    def throttled(self) -> set[tuple[TopicPartition, int]]:
        """Arriving replicas on live brokers that a list names and whose broker has a rate."""
        return {
            (key, broker)
            for key, broker in self.arriving()
            if (broker, Role.FOLLOWER) in self.rates and self.named(key, broker, Role.FOLLOWER)
        }

    def arriving(self) -> Iterable[tuple[TopicPartition, int]]:
        return ((key, broker) for key, move in self.moves.items() for broker in move.arriving & self.live)

    def named(self, key: TopicPartition, broker: int, role: Role) -> bool:
        entries = self.lists.get((key.topic, role), frozenset())
        return "*" in entries or f"{key.partition}:{broker}" in entries

    def someone_sets_rate(self, place: Place, rate: int) -> None:
        self.rates[place] = self.foreign_rates[place] = rate

    def someone_adds(self, place: ListPlace, entry: str) -> None:
        """Another tool reads the list, adds its entry and writes it back; `*` stands alone, as Kafka demands."""
        if entry == "*" or "*" in self.lists.get(place, frozenset()):
            self.lists[place] = self.foreign_lists[place] = frozenset("*")
            return
        known = {found.removeprefix("-") for found in self.stored.lists.get(place, frozenset())}
        if entry in (self.lists.get(place, frozenset()) | known) - self.foreign_lists.get(place, frozenset()):
            return  # the same entry as ours: no one can know whose it is
        self.lists[place] = self.lists.get(place, frozenset()) | {entry}
        self.foreign_lists[place] = self.foreign_lists.get(place, frozenset()) | {entry}

    def in_sync(self, key: TopicPartition, broker: int) -> None:
        move = self.moves[key]
        self.moves[key] = replace(move, in_sync=move.in_sync | {broker})


def move(
    replicas: tuple[int, ...], adding: Iterable[int], leader: int | None = 1, in_sync: Iterable[int] | None = None
) -> MoveSeen:
    """A move of a partition whose old replicas are in sync unless given otherwise."""
    arriving = frozenset(adding)
    synced = frozenset(replicas) - arriving if in_sync is None else frozenset(in_sync)
    return MoveSeen(replicas, arriving, leader, synced)
