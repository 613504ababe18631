"""How much one broker may send or receive for reassignments: what its clients leave of its capacity, and no less than
the move needs to end at all.

A move that is throttled below what producers write never ends, so the floor is part of every decision; but a floor is
never reached at the cost of clients: then the move is stalled, which is reported with both figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from blockhouse.throttle import kafka_kit
from blockhouse.throttle.model import Load, Role, Settings

DECREASE_THRESHOLD = 0.03
LARGEST_RISE = 2.0
ESTIMATED_SHARE = 0.7
ABSURD = 1.5
"""Times the capacity: no broker sends or receives that much, so the figure is wrong (or the capacity is)."""


class Why(StrEnum):
    """What decided a rate; each reads as the end of "the rate is ... because of"."""

    MEASURED = "free capacity"
    ESTIMATED = "free capacity, estimated"
    FLOOR = "the writes of the partitions that move"
    FIRST = "the first interval"
    UNCHANGED = "a change below the threshold"
    KEPT = "missing figures, for the moment"
    NO_FIGURES = "missing figures"
    CAPACITY_UNKNOWN = "unknown capacity"
    OVERRIDE = "an override"
    FOREIGN = "a throttle that another tool or person set"


@dataclass(frozen=True, slots=True)
class Inputs:
    """One broker in one role. `load` is None when it is missing, stale or absurd; `in_force` is our rate of now."""

    role: Role
    capacity: float | None
    load: Load | None
    floor: float
    in_force: int | None
    failures: int = 0
    last_other: float | None = None
    adjust: bool = True


@dataclass(frozen=True, slots=True)
class Stall:
    """The rate that a move needs to end, and the highest that it may have."""

    needed: float
    possible: float


@dataclass(frozen=True, slots=True)
class Decision:
    """A rate and why. `other` is what clients use, None while unknown."""

    rate: int
    why: Why
    floor: float
    capacity: float | None = None
    other: float | None = None
    stall: Stall | None = None


class Fault(StrEnum):
    """Why the figures of a broker cannot be used."""

    MISSING = "missing"
    STALE = "stale"
    ABSURD = "absurd"


def fault_of(load: Load | None, role: Role, capacity: float | None, settings: Settings) -> Fault | None:
    """Why the load cannot be trusted; None when it is fresh, finite, not negative, and not far above the capacity."""
    if load is None:
        return Fault.MISSING
    if load.age > 2 * settings.window:
        return Fault.STALE
    total, moved = load.total(role), load.moved(role)
    if total is None:
        return Fault.MISSING
    if any(not math.isfinite(figure) or figure < 0 for figure in (total, moved or 0.0)):
        return Fault.ABSURD
    if capacity is not None and total > ABSURD * capacity:
        return Fault.ABSURD
    return Fault.ABSURD if moved and not total else None  # something was copied, so nothing in all cannot be true


def usable(load: Load | None, role: Role, capacity: float | None, settings: Settings) -> Load | None:
    """The load, if its figures can be trusted."""
    return load if fault_of(load, role, capacity, settings) is None else None


def decide(inputs: Inputs, settings: Settings) -> Decision:
    """The rate of a broker in a role, without overrides."""
    other = _other(inputs) if inputs.load is not None else None
    known_other = other if other is not None else inputs.last_other
    possible = _possible(inputs.capacity, known_other, settings)
    stall = Stall(inputs.floor, possible) if possible is not None and inputs.floor > possible else None
    rate, why = _automatic(inputs, other, possible, settings)
    return Decision(round(rate), why, inputs.floor, inputs.capacity, known_other, stall)


def fixed(inputs: Inputs, rate: int, why: Why) -> Decision:
    """A rate that is not ours to choose: it can be too low for the move all the same."""
    stall = Stall(inputs.floor, float(rate)) if inputs.floor > rate else None
    other = _other(inputs) if inputs.load is not None else inputs.last_other
    return Decision(rate, why, inputs.floor, inputs.capacity, other, stall)


def _automatic(inputs: Inputs, other: float | None, possible: float | None, settings: Settings) -> tuple[float, Why]:
    now = inputs.in_force
    minimum = _minimum(inputs.floor, possible, settings)
    if inputs.capacity is None:
        target, why = minimum, Why.CAPACITY_UNKNOWN
    elif now is None:
        target, why = minimum, Why.FIRST
    elif other is None:
        if inputs.failures <= settings.failure_threshold:
            return max(now, settings.min_rate), Why.KEPT
        target, why = minimum, Why.NO_FIGURES
    else:
        target, why = _target(inputs, other, possible, settings)
    if now is None:
        return target, why
    urgent = now < min(inputs.floor, target)
    rate = approach(now, target, settings.change_threshold, adjust=inputs.adjust, urgent=urgent)
    rate = max(rate, settings.min_rate)
    return rate, why if rate != now or rate == target else Why.UNCHANGED


def _target(inputs: Inputs, other: float, possible: float | None, settings: Settings) -> tuple[float, Why]:
    """Where the rate should be, however far that is."""
    assert inputs.capacity is not None
    assert inputs.load is not None
    share, why = settings.share(inputs.role), Why.MEASURED
    if inputs.load.estimated:
        share, why = min(share, ESTIMATED_SHARE), Why.ESTIMATED
    if settings.formula == "kafka-kit":
        net, known = inputs.load.total(inputs.role), float(inputs.in_force or 0)
        target = kafka_kit.rate_mb(net or 0.0, known, inputs.capacity, share * 100, settings.min_rate)
    else:
        target = max(inputs.capacity - other, 0.0) * share
    if target < inputs.floor and possible is not None and inputs.floor <= possible:
        target, why = inputs.floor, Why.FLOOR
    if settings.max_rate is not None:
        target = min(target, settings.max_rate)
    return max(target, settings.min_rate), why


def approach(now: float, target: float, threshold: float, *, adjust: bool = True, urgent: bool = False) -> float:
    """The next rate on the way: down at once, up in steps and only if it is worth it (or `urgent`)."""
    if target < now:
        return target if now - target >= DECREASE_THRESHOLD * now else now
    worth_it = urgent or target - now >= threshold * now
    return min(target, LARGEST_RISE * now) if adjust and worth_it else now


def _other(inputs: Inputs) -> float:
    """What clients and healthy replication use: everything less what reassignments copied in the same window.

    Where that was not measured, replication is taken to have used its whole rate.
    """
    assert inputs.load is not None
    total, moved = inputs.load.total(inputs.role) or 0.0, inputs.load.moved(inputs.role)
    return max(total - (moved if moved is not None else min(inputs.in_force or 0, total)), 0.0)


def _possible(capacity: float | None, other: float | None, settings: Settings) -> float | None:
    """The highest rate that leaves clients what they use; None while it is not known."""
    limits = [settings.max_rate] if settings.max_rate is not None else []
    if capacity is not None:
        limits.append(max(capacity - (other or 0.0), 0.0))
    return min(limits, default=None)


def _minimum(floor: float, possible: float | None, settings: Settings) -> float:
    """For when little is known: enough for the move to end, as far as capacity allows, never below `min_rate`."""
    return max(settings.min_rate, floor if possible is None else min(floor, possible))
