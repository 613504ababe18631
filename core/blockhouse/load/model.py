"""The values of load: one sample of a cluster, and the rate of a partition with where it comes from and how old it is.

Pure. A rate is never invented: what was not measured is missing in a sample, and named in its problems. Units
everywhere: bytes/s as stored by the broker (compressed), records/s, seconds, and seconds since the epoch for moments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from blockhouse.placement.model import TopicPartition


class Quality(StrEnum):
    """How far a figure can be relied on."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    """Derived from something else, or part of it could not be seen: who must not exceed a limit leaves more room."""


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """What is written to one partition: bytes/s (one replica, compressed) and records/s, None where unknown."""

    bytes: float
    messages: float | None = None
    quality: Quality = Quality.MEASURED


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """What goes through one broker's network, bytes/s; None where the source does not report it.

    `tx` and `rx` are everything sent and received, replication and reassignment included; `moved_out` and `moved_in`
    the part of it that is copied to, or arrives for, replicas of a reassignment. All four come from one window.
    """

    tx: float | None
    rx: float | None
    moved_out: float | None = None
    moved_in: float | None = None
    quality: Quality = Quality.MEASURED


class ProblemKind(StrEnum):
    """Why a sample lacks something."""

    UNAVAILABLE = "unavailable"
    """The source, or one broker of it, did not answer."""
    NOT_LED = "no leader"
    RESET = "reset"
    """Offsets went back, or the topic is another one: the interval gives no rate."""
    UNKNOWN = "unknown"
    """The source names something that the cluster does not have, or does not name what the cluster has."""
    IMPLAUSIBLE = "implausible"
    """A figure that cannot be: negative, NaN, infinite."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing a sample lacks: `subject` is what it is about (a broker, a topic, a partition), `text` a sentence."""

    kind: ProblemKind
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}"


@dataclass(frozen=True, slots=True)
class Sample:
    """The load of one cluster over the `window` seconds that ended at `at` (seconds since the epoch).

    `topics` is filled by sources that know no more than a topic's rate: the sum over its partitions. A partition or
    broker that is missing was not measured; it is not idle.
    """

    cluster_id: str
    source: str
    at: float
    window: float
    partitions: Mapping[TopicPartition, PartitionLoad] = field(default_factory=dict)
    topics: Mapping[str, PartitionLoad] = field(default_factory=dict)
    brokers: Mapping[int, BrokerLoad] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def age(self, now: float) -> float:
        """Seconds since the window's end; never negative, though clocks differ."""
        return max(now - self.at, 0.0)


class RateSource(StrEnum):
    """From what a partition's rate was derived, best first."""

    PARTITION = "partition"
    HISTORY = "history"
    """The partition's own figures, kept by a former process: this one has not measured it yet."""
    TOPIC = "topic"
    """The topic's rate, shared out evenly among its partitions."""
    DEFAULT = "default"
    """A configured guess: nothing was measured."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of a partition as a decision uses it. `age` is in seconds, None when nothing was ever measured."""

    bytes: float
    messages: float | None
    source: RateSource
    age: float | None
    quality: Quality = Quality.MEASURED


class LoadSource(Protocol):
    """Where samples come from. An adapter; it may block for as long as its own time-outs allow."""

    @property
    def name(self) -> str:
        """The provider's name as configured: sampled, prometheus, cruiseControl, static."""

    def sample(self) -> Sample | None:
        """The newest sample; None while a first look has nothing to compare with.

        What is missing is in its problems. Raises Retryable when the provider does not answer at all, Permanent when
        it is configured wrongly: the caller reports either and decides with what it has.
        """
