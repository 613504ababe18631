"""One step of the throttler: what was seen and what is known -> what is known then, and effects in order.

The order is the safety: what is ours is remembered before it is written; rates and lists are there before a replica
moves, and go in the order lists, then rates. So wherever the effects are cut, nothing moves unthrottled that was
throttled, and nothing is left that the next step would not recognise as ours. What others set is never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from blockhouse.throttle.lists import ListChange, list_changes
from blockhouse.throttle.model import (
    KEPT_VALUES,
    NO_RATE,
    ClearRate,
    Effect,
    ForgetOverride,
    Known,
    Observed,
    Override,
    Overrides,
    Ownership,
    Place,
    Remember,
    SetRate,
    Settings,
)
from blockhouse.throttle.moves import Participants, participants
from blockhouse.throttle.rates import Decision, Inputs, Why, decide, fixed, usable
from blockhouse.throttle.wording import Facts, events


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows from a look. `decisions` are for reports; the effects are carried out in their order."""

    known: Known
    effects: tuple[Effect, ...]
    decisions: Mapping[Place, Decision]


@dataclass(frozen=True, slots=True)
class _RateChange:
    """A broker's rate in a role: what to write, what is ours before and after, whether a foreign one is there."""

    place: Place
    write: int | None = None
    clear: bool = False
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    foreign: int | None = None


def step(observed: Observed, known: Known, settings: Settings) -> Outcome:
    """Decide about every broker and list; total for every input."""
    part = participants(observed.moves, observed.write_rates)
    overrides, ended = _overrides(observed, known)
    failures = _failures(observed, known, part, settings)
    decisions = {
        place: _decide(place, floor, observed, known, settings, failures, overrides)
        for place, floor in sorted(part.floors.items())
    }
    rates = list(_rate_changes(decisions, observed, known.ownership, settings))
    lists = list_changes(part.lists, observed, known.ownership, adopt=settings.foreign == "Adopt")
    before, after = _ownership(known.ownership, rates, lists)
    facts = Facts(decisions, {c.place: c.foreign for c in rates if c.foreign is not None}, lists, failures)
    messages, reported = events(facts, known.reported, settings)
    effects: list[Effect] = []
    if before != known.ownership:
        effects.append(Remember(before))
    effects += [SetRate(*change.place, change.write) for change in rates if change.write is not None]
    effects += [effect for change in lists for effect in change.additions]
    effects += [effect for change in lists for effect in change.removals]
    effects += [ClearRate(*change.place) for change in rates if change.clear]
    if after != before:
        effects.append(Remember(after))
    effects += [ForgetOverride(broker) for broker in ended]
    effects += messages
    others = {place: decision.other for place, decision in decisions.items() if decision.other is not None}
    return Outcome(
        Known(after, failures, {**known.others, **others} if decisions else {}, reported), tuple(effects), decisions
    )


def _overrides(observed: Observed, known: Known) -> tuple[Overrides, tuple[int | None, ...]]:
    """The overrides that hold, and those that end now: expired, or asked to end with the reassignment."""
    given = observed.overrides
    finished = bool(known.ownership) and not observed.moves

    def over(override: Override) -> bool:
        expired = override.expires_at is not None and override.expires_at <= observed.at
        return expired or (override.auto_remove and finished)

    ended: list[int | None] = [broker for broker, override in sorted(given.brokers.items()) if over(override)]
    everywhere = given.everywhere
    if everywhere is not None and over(everywhere):
        ended.append(None)
        everywhere = None
    brokers = {broker: override for broker, override in given.brokers.items() if broker not in ended}
    return Overrides(everywhere, brokers), tuple(ended)


def _failures(observed: Observed, known: Known, part: Participants, settings: Settings) -> dict[int, int]:
    """Intervals in a row without usable figures, by broker that takes part: one broker's gap touches no other."""
    failures: dict[int, int] = {}
    for broker, role in part.floors:
        count = known.failures.get(broker, 0)
        found = usable(observed.loads.get(broker), role, settings.capacity.of(broker), settings)
        missing = count + (1 if observed.adjust else 0) if found is None else 0
        failures[broker] = max(missing, failures.get(broker, 0))
    return {broker: count for broker, count in failures.items() if count}


def _decide(
    place: Place,
    floor: float,
    observed: Observed,
    known: Known,
    settings: Settings,
    failures: Mapping[int, int],
    overrides: Overrides,
) -> Decision:
    broker, role = place
    capacity = settings.capacity.of(broker)
    live = observed.rates.get(place)
    ours = live is not None and live in known.ownership.rates.get(place, ())
    inputs = Inputs(
        role=role,
        capacity=capacity,
        load=usable(observed.loads.get(broker), role, capacity, settings),
        floor=floor,
        in_force=live if ours or settings.foreign == "Adopt" else None,
        failures=failures.get(broker, 0),
        last_other=known.others.get(place),
        adjust=observed.adjust,
    )
    if live is not None and not ours and settings.foreign == "Respect":
        return fixed(inputs, live, Why.FOREIGN)
    override = overrides.of(broker)
    return fixed(inputs, override.rate, Why.OVERRIDE) if override is not None else decide(inputs, settings)


def _rate_changes(
    decisions: Mapping[Place, Decision], observed: Observed, owned: Ownership, settings: Settings
) -> Iterator[_RateChange]:
    for place in sorted(decisions.keys() | owned.rates.keys()):
        ours, live = owned.rates.get(place, ()), observed.rates.get(place)
        desired = decisions.get(place)
        foreign = live if live is not None and live not in ours else None
        if place[0] not in observed.live:  # nothing can be written there; what is ours stays ours until it returns
            yield _RateChange(place, before=ours, after=ours)
        elif foreign is not None and (desired is None or settings.foreign == "Respect"):
            yield _RateChange(place, foreign=foreign)
        elif desired is not None:
            kept = _newest(ours, desired.rate)
            # Seen, and written last: an older value may be seen again for a moment after it was replaced.
            settled = live == desired.rate and ours[-1:] == (desired.rate,)
            yield _RateChange(place, None if settled else desired.rate, before=kept, after=kept)
        elif live is not None or ours[-1:] != (NO_RATE,):
            yield _RateChange(place, clear=True, before=ours, after=_newest(ours, NO_RATE))
        else:
            yield _RateChange(place, before=ours)


def _newest(values: tuple[int, ...], value: int) -> tuple[int, ...]:
    """The values with this one as the newest."""
    return (*(old for old in values if old != value), value)[-KEPT_VALUES:]


def _ownership(owned: Ownership, rates: list[_RateChange], lists: list[ListChange]) -> tuple[Ownership, Ownership]:
    """What is to be remembered before the first write, and after the last."""
    before = Ownership(
        {change.place: change.before for change in rates if change.before},
        {change.place: change.owned_before for change in lists if change.owned_before},
    )
    after = Ownership(
        {change.place: change.after for change in rates if change.after},
        {change.place: change.owned_after for change in lists if change.owned_after},
    )
    return (owned, after) if _covers(owned, before) else (before, after)


def _covers(owned: Ownership, needed: Ownership) -> bool:
    """Whether all that is needed is remembered already: then nothing has to be written before the effects."""
    return all(values == owned.rates.get(place, ()) for place, values in needed.rates.items()) and all(
        entries <= owned.lists.get(place, frozenset()) for place, entries in needed.lists.items()
    )
