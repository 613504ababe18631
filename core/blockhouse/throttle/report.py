"""What people read about a running throttle: a line for each broker and role, and when it will be done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from blockhouse.placement.model import TopicPartition
from blockhouse.throttle.model import Observed, Place, Role
from blockhouse.throttle.rates import Decision
from blockhouse.throttle.wording import megabytes


@dataclass(frozen=True, slots=True)
class Row:
    """One broker in one role. Rates in bytes/s, `remaining` in bytes, `eta` in seconds; None where unknown.

    An `eta` of infinity means that at this pace the move never ends.
    """

    broker: int
    role: Role
    alive: bool
    capacity: float | None
    other: float | None
    moved: float | None
    rate: int
    in_force: int | None
    floor: float
    why: str
    remaining: float | None
    eta: float | None
    stalled: bool
    possible: float | None = None
    """The highest rate it may have, where that is below the floor."""


def rows(
    observed: Observed, decisions: Mapping[Place, Decision], copied: Mapping[tuple[TopicPartition, int], float]
) -> tuple[Row, ...]:
    """Every broker that takes part. `copied` are the bytes/s at which replicas arrived lately, where measured."""
    remaining, speed = _by_place(observed, copied)
    return tuple(
        Row(
            broker=place[0],
            role=place[1],
            alive=place[0] in observed.live,
            capacity=decision.capacity,
            other=decision.other,
            moved=speed.get(place),
            rate=decision.rate,
            in_force=observed.rates.get(place),
            floor=decision.floor,
            why=decision.why.value,
            remaining=remaining.get(place),
            eta=_eta(observed, place, decision, remaining.get(place), speed.get(place)),
            stalled=decision.stall is not None,
            possible=decision.stall.possible if decision.stall is not None else None,
        )
        for place, decision in decisions.items()
    )


def stalled_text(row: Row) -> str:
    """Of a row that is stalled: which broker, and both rates."""
    needed, possible = megabytes(row.floor), megabytes(row.possible or 0.0)
    return f"broker {row.broker} ({row.role}): {needed} needed, at most {possible} possible"


def whole_eta(found: tuple[Row, ...]) -> float | None:
    """Seconds until the slowest destination is done; None while unknown."""
    known = [row.eta for row in found if row.role is Role.FOLLOWER]
    return None if not known or None in known else max(eta for eta in known if eta is not None)


def _by_place(
    observed: Observed, copied: Mapping[tuple[TopicPartition, int], float]
) -> tuple[dict[Place, float], dict[Place, float]]:
    remaining: dict[Place, float] = defaultdict(float)
    speed: dict[Place, float] = defaultdict(float)
    for key, move in observed.moves.items():
        for broker in move.arriving:
            places: list[Place] = [(broker, Role.FOLLOWER)]
            if move.leader is not None:
                places.append((move.leader, Role.LEADER))
            for place in places:
                if (key, broker) in observed.remaining:
                    remaining[place] += observed.remaining[key, broker]
                if (key, broker) in copied:
                    speed[place] += copied[key, broker]
    return dict(remaining), dict(speed)


def _eta(
    observed: Observed, place: Place, decision: Decision, remaining: float | None, speed: float | None
) -> float | None:
    """Remaining bytes by what is copied faster than it is written."""
    if remaining is None or place[1] is Role.LEADER:
        return None
    written = sum(
        observed.write_rates.get(key, 0.0) for key, move in observed.moves.items() if place[0] in move.arriving
    )
    gain = (speed if speed else decision.rate) - written
    return remaining / gain if gain > 0 else float("inf")
