"""What a run does and when: read from a YAML file, or decided by a seed alone.

Pure: no clock, no server. The same arguments give the same scenario, so that a run can be repeated.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from e2e.chaos.layout import KAFKA, Layout


class Kind(StrEnum):
    """Every way to do harm; `docs/testing.md` has a row for each."""

    KILL = "kill"
    """SIGKILL; started again after `seconds`."""
    FREEZE = "freeze"
    """SIGSTOP for `seconds`, then SIGCONT."""
    MEMBER = "member"
    """SIGKILL of the Spark JVM (`member: java`) or of the Python workers (`member: worker`) of an aggregator alone."""
    STRIKE = "strike"
    """SIGKILL of the aggregator at a named point of its work (docs/faults.md); started again after `seconds`."""
    PARTITION = "partition"
    """No packet passes between `target` and `peer` for `seconds`."""
    LOSS = "loss"
    """A `share` of the packets between `target` and `peer` is lost for `seconds`."""
    DELAY = "delay"
    """What `target` asks of `peer`, and its answers, takes `delay` seconds longer for `seconds`."""
    DISK_FULL = "disk-full"
    """The disk of a ClickHouse replica is full for `seconds`."""
    RESTART = "restart"
    """SIGTERM to each process of `target` in turn, each started again before the next."""
    SKEW = "skew"
    """The wall clock of `target` is `offset` seconds off for `seconds`; its monotonic clock is right."""


SERVERS = {Kind.KILL, Kind.FREEZE, Kind.RESTART}
NETWORK = {Kind.PARTITION, Kind.LOSS, Kind.DELAY}
"""Kinds that need a network namespace of our own."""
SKEWABLE = (*KAFKA, "verifier")
LEAST_SKEW, MOST_SKEW = 30.0, 3000.0
"""Less could not be distinguished from a slow answer. A broker refuses messages that are an hour ahead of its clock
(`message.timestamp.after.max.ms`): that would be the producer's failure, which is not what a skew is about."""


class Fault(BaseModel):
    """One fault. `target` and `peer` name a process (`aggregator-r1`, `clickhouse-r1`, `kafka-a`, `zookeeper`,
    `verifier`) or a group (`replica-r1`, `zone-a`, `aggregators`, `clickhouses`, `shard-1`); the pods of a second shard
    are called `s2-r1` instead of `r1`. `at` is in seconds of the production; `case` is the line of a table of
    recoveries that the fault counts for."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    at: float = Field(ge=0)
    kind: Kind
    target: str
    seconds: float = Field(default=5, gt=0, le=600)
    peer: str = ""
    member: Literal["java", "worker"] = "worker"
    point: str = "after-insert"
    share: float = Field(default=0.3, gt=0, lt=1)
    delay: float = Field(default=0.02, gt=0, le=5)
    offset: float = Field(default=-300, ge=-MOST_SKEW, le=MOST_SKEW)
    case: str = ""

    @model_validator(mode="after")
    def _makes_sense(self) -> Fault:
        if (self.kind in NETWORK) != bool(self.peer):
            raise ValueError(f"{self.kind}: `peer` is for {', '.join(sorted(NETWORK))}, and they need it")
        if self.kind is Kind.SKEW and self.target not in SKEWABLE:
            raise ValueError(f"{self.kind}: only the clocks of {', '.join(SKEWABLE)} can be shifted")
        if abs(self.offset) < LEAST_SKEW:
            raise ValueError(
                f"{self.kind}: an `offset` of {self.offset:g} s is too little to be noticed: {LEAST_SKEW:g} or more"
            )
        return self

    @property
    def end(self) -> float:
        return self.at + self.seconds

    def __str__(self) -> str:
        details = {
            Kind.MEMBER: f" ({self.member})",
            Kind.STRIKE: f" at {self.point}",
            Kind.LOSS: f" of {self.share:.0%}",
            Kind.DELAY: f" of {self.delay * 1000:.0f} ms",
            Kind.SKEW: f" by {self.offset:+.0f} s of",
        }
        peer = f" from {self.peer}" if self.peer else ""
        return f"{self.kind}{details.get(self.kind, '')} {self.target}{peer}, {self.seconds:.1f} s"


MAX_SHARDS, MOST_PODS = 2, 8
"""As much as one machine can start within the time-outs."""


class Scenario(BaseModel):
    """One run, fully decided. `rate` is in messages a second to all clusters together, ten rows each, for each of the
    `shards`; they have `replicas` each."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    name: str = "scenario"
    seed: int = 1
    shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] = 1
    replicas: Annotated[int, Field(ge=2, le=8)] = 4
    seconds: Annotated[float, Field(ge=10)] = 60
    rate: Annotated[float, Field(gt=0)] = 200
    window: Annotated[int, Field(ge=1, description="deduplication window of the tables, in blocks")] = 10_000
    replays: Annotated[bool, Field(description="fail a run in which no block was replayed")] = True
    outages: Annotated[bool, Field(description="fail a run in which no outage of a whole shard was judged")] = False
    alerts: Annotated[
        tuple[str, ...], Field(description="shipped alerts: fail a run in which one of them did not fire and resolve")
    ] = ()
    in_turn: Annotated[
        bool, Field(description="each fault waits until the one before is recovered from; `at` counts from there")
    ] = False
    faults: tuple[Fault, ...] = ()

    @model_validator(mode="after")
    def _known(self) -> Scenario:
        if self.shards * self.replicas > MOST_PODS:
            raise ValueError(f"{self.shards} shards of {self.replicas} replicas: at most {MOST_PODS} in all")
        known = set(self.layout.names)
        for fault in self.faults:
            for name in filter(None, (fault.target, fault.peer)):
                if name not in known:
                    raise ValueError(f"{fault.kind} at {fault.at:g} s: nothing is called {name}")
            if fault.kind in (Kind.MEMBER, Kind.STRIKE) and not fault.target.startswith("aggregator-"):
                raise ValueError(f"{fault.kind} at {fault.at:g} s: only aggregators have members and points")
            if fault.kind is Kind.DISK_FULL and fault.target != DISK:
                raise ValueError(f"{fault.kind} at {fault.at:g} s: only {DISK} has a disk of its own")
        return self

    @property
    def layout(self) -> Layout:
        return Layout(self.replicas, self.shards)

    @property
    def messages(self) -> int:
        """To each shard."""
        return int(self.seconds * self.rate)


DISK = "clickhouse-r2"
"""The replica whose data is on a file system of its own, which can be filled."""
