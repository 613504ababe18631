"""What people read about a step, each once: when it begins to hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from blockhouse.throttle.lists import ListChange
from blockhouse.throttle.model import Event, Place, Role, Settings
from blockhouse.throttle.rates import Decision, Why

STALLED, CAPACITY_UNKNOWN, FOREIGN_THROTTLE = "ThrottleStalled", "CapacityUnknown", "ForeignThrottle"
LOAD_UNAVAILABLE = "LoadUnavailable"
METRICS_MISSING, THROTTLE_SET, THROTTLE_REMOVED = "MetricsMissing", "ThrottleSet", "ThrottleRemoved"
_SIDE = {Role.LEADER: "source", Role.FOLLOWER: "destination"}


@dataclass(frozen=True, slots=True)
class Facts:
    decisions: Mapping[Place, Decision]
    foreign: Mapping[Place, int]
    lists: list[ListChange]
    failures: Mapping[int, int]


def megabytes(rate: float) -> str:
    """`12.5 MB/s`."""
    return f"{rate / 1e6:.4g} MB/s"


def stall_text(place: Place, decision: Decision) -> str:
    """What is too slow, both rates, and what to do."""
    assert decision.stall is not None
    needed, possible = megabytes(decision.stall.needed), megabytes(decision.stall.possible)
    remedy = {
        Why.OVERRIDE: "raise or remove the override",
        Why.FOREIGN: "raise the rate that another tool or person set there, or adopt it",
    }.get(
        decision.why, "move fewer partitions at a time, allow a larger share of the capacity, or choose another target"
    )
    return (
        f"broker {place[0]} as {_SIDE[place[1]]}: the partitions that move are written faster than they may be "
        f"copied: {needed} needed, {possible} possible; {remedy}"
    )


def events(
    facts: Facts, reported: frozenset[tuple[str, str]], settings: Settings
) -> tuple[list[Event], frozenset[tuple[str, str]]]:
    """The events that are new, and all that hold now."""
    found = dict(_found(facts, settings))
    new = [Event(key[0], text, warning=key[0] != THROTTLE_SET) for key, text in found.items() if key not in reported]
    if not facts.decisions and any(reason == THROTTLE_SET for reason, _ in reported):
        new.append(Event(THROTTLE_REMOVED, "nothing moves any more: the throttles of this reassignment are removed"))
    return new, frozenset(found)


def _found(facts: Facts, settings: Settings) -> Iterator[tuple[tuple[str, str], str]]:
    if facts.decisions:
        brokers = ", ".join(map(str, sorted({broker for broker, _ in facts.decisions})))
        yield (THROTTLE_SET, ""), f"replication throttled on brokers {brokers}"
    for place, rate in facts.foreign.items():
        text = f"broker {place[0]} has a {place[1]} throttle of {megabytes(rate)} that is not ours: it is left alone"
        yield (FOREIGN_THROTTLE, f"{place[0]} {place[1]}"), text
    for place, decision in facts.decisions.items():
        if decision.stall is not None:
            yield (STALLED, f"{place[0]} {place[1]}"), stall_text(place, decision)
        if decision.why is Why.CAPACITY_UNKNOWN:
            text = (
                f"broker {place[0]}: its capacity is unknown, so it gets the minimum; give capacity.default or its own"
            )
            yield (CAPACITY_UNKNOWN, str(place[0])), text
    for broker, count in facts.failures.items():
        if count > settings.failure_threshold:
            yield (
                (METRICS_MISSING, str(broker)),
                f"broker {broker}: no usable figures of its load, so it gets the minimum",
            )
