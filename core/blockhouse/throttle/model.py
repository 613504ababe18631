"""The values a throttle is decided from, and the effects it consists of. Rates are bytes per second, everywhere.

Pure values: nothing in this package may know a Kafka client, a clock, a thread or chance; time is handed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from blockhouse.placement.model import ReplicaSet, TopicPartition


class Role(StrEnum):
    """Kafka's two sides of a throttle: who sends replicas (leaders), and who receives them (followers)."""

    LEADER = "leader"
    FOLLOWER = "follower"

    @property
    def rate_setting(self) -> str:
        """The broker's setting. Without a list it does nothing."""
        return f"{self.value}.replication.throttled.rate"

    @property
    def list_setting(self) -> str:
        """The topic's setting: `partition:broker,...` or `*`. Without a rate it does nothing."""
        return f"{self.value}.replication.throttled.replicas"


Place = tuple[int, Role]
"""A broker in a role."""
ListPlace = tuple[str, Role]
"""A topic's list of a role."""
ALL_REPLICAS = "*"
NO_RATE = -1
"""In what is remembered of a rate: its removal was sent."""
KEPT_VALUES = 8
"""Values that are remembered of a rate. No broker answers with what was set so many changes ago."""


@dataclass(frozen=True, slots=True)
class MoveSeen:
    """A partition that moves, or is about to: its replicas now, those that arrive, leader and replicas in sync."""

    replicas: ReplicaSet
    adding: frozenset[int]
    leader: int | None
    in_sync: frozenset[int]

    @property
    def arriving(self) -> frozenset[int]:
        """Who still copies."""
        return self.adding - self.in_sync

    @property
    def holders(self) -> frozenset[int]:
        """Who may be its leader while it moves, hence a source."""
        return frozenset(self.replicas) - self.adding


@dataclass(frozen=True, slots=True)
class Load:
    """What one broker sends and receives, everything included; None while unknown. `moved_*` is the part that
    reassignments copy, and is None when it was not measured in the same window. `age` is in seconds; `estimated`
    figures miss some clients.
    """

    outbound: float | None
    inbound: float | None
    moved_out: float | None = None
    moved_in: float | None = None
    age: float = 0.0
    estimated: bool = False

    def total(self, role: Role) -> float | None:
        """Bytes per second in the role's direction: sent by a leader, received by a follower; None while unknown."""
        return self.outbound if role is Role.LEADER else self.inbound

    def moved(self, role: Role) -> float | None:
        """The part of `total` that reassignments copy."""
        return self.moved_out if role is Role.LEADER else self.moved_in


@dataclass(frozen=True, slots=True)
class Override:
    """A rate that was requested, exactly. `expires_at` is in seconds since 1970."""

    rate: int
    auto_remove: bool = False
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Overrides:
    """Of a broker before that of all brokers."""

    everywhere: Override | None = None
    brokers: Mapping[int, Override] = field(default_factory=dict)

    def of(self, broker: int) -> Override | None:
        """The rate requested of the broker, or of all; None without one."""
        return self.brokers.get(broker, self.everywhere)


@dataclass(frozen=True, slots=True)
class Observed:
    """One look. `rates` and `lists` are what brokers and topics have set for themselves, by whomever.

    `adjust` is False between intervals: then rates and lists of new moves are set and nothing is raised. `at` is the
    time of day in seconds since 1970, for overrides that expire.
    """

    moves: Mapping[TopicPartition, MoveSeen]
    live: frozenset[int]
    topics: frozenset[str]
    rates: Mapping[Place, int] = field(default_factory=dict)
    lists: Mapping[ListPlace, frozenset[str]] = field(default_factory=dict)
    loads: Mapping[int, Load] = field(default_factory=dict)
    write_rates: Mapping[TopicPartition, float] = field(default_factory=dict)
    remaining: Mapping[tuple[TopicPartition, int], float] = field(default_factory=dict)
    overrides: Overrides = Overrides()
    at: float = 0.0
    adjust: bool = True


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a broker's network can carry in one direction; None where it was not given."""

    default: float | None = None
    by_broker: Mapping[int, float] = field(default_factory=dict)

    def of(self, broker: int) -> float | None:
        """Bytes per second of the broker's network; None where it is not known."""
        return self.by_broker.get(broker, self.default)


@dataclass(frozen=True, slots=True)
class Settings:
    """How to throttle. Fractions are of 1."""

    capacity: Capacity = Capacity()
    min_rate: float = 10e6
    max_rate: float | None = None
    max_outbound: float = 0.9
    max_inbound: float = 0.9
    change_threshold: float = 0.1
    failure_threshold: int = 1
    window: float = 60.0
    formula: Literal["measured", "kafka-kit"] = "measured"
    foreign: Literal["Respect", "Adopt"] = "Respect"

    def share(self, role: Role) -> float:
        """The fraction of a broker's capacity that moves may take in the role's direction."""
        return self.max_outbound if role is Role.LEADER else self.max_inbound


@dataclass(frozen=True, slots=True)
class Ownership:
    """What in the cluster is ours, to be kept durably: values of rates, entries of lists.

    It is written before the cluster is changed, so it may name more than was written: a value counts as ours only
    while the cluster has it. A broker may answer for a moment what was before a change: so of each rate the last values
    are kept, the newest last, and what is to go stays until a look has shown it gone, marked as removed (a rate of
    `NO_RATE`, an entry with a leading `-`).
    """

    rates: Mapping[Place, tuple[int, ...]] = field(default_factory=dict)
    lists: Mapping[ListPlace, frozenset[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rates or self.lists)


@dataclass(frozen=True, slots=True)
class Known:
    """What the throttler carries from step to step. Only `ownership` must survive it; the rest begins afresh.

    `failures` counts intervals without usable figures, by broker; `others` is what clients used when it was last
    measured; `reported` are the events that stand, so that each is reported once.
    """

    ownership: Ownership = Ownership()
    failures: Mapping[int, int] = field(default_factory=dict)
    others: Mapping[Place, float] = field(default_factory=dict)
    reported: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep this durably before anything that follows."""

    ownership: Ownership


@dataclass(frozen=True, slots=True)
class SetRate:
    """Let a broker copy at most `rate` bytes per second in a role."""

    broker: int
    role: Role
    rate: int


@dataclass(frozen=True, slots=True)
class ClearRate:
    """Remove our rate from a broker."""

    broker: int
    role: Role


@dataclass(frozen=True, slots=True)
class SetList:
    """The whole list, entries of others included."""

    topic: str
    role: Role
    entries: frozenset[str]


@dataclass(frozen=True, slots=True)
class ClearList:
    """Remove the whole list of throttled replicas from a topic."""

    topic: str
    role: Role


@dataclass(frozen=True, slots=True)
class ForgetOverride:
    """It has expired, or its reassignment ended. `broker` of None is that of all brokers."""

    broker: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that people want to read once."""

    reason: str
    text: str
    warning: bool = False


Effect = Remember | SetRate | ClearRate | SetList | ClearList | ForgetOverride | Event
