"""What was seen of a shard at one moment. Values only; every failure to gather them is a word here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from blockhouse_operator.decide.replication import ReplicationSeen


class State(StrEnum):
    """What a replica does, as `ReplicaStatus.state` shows it. The order is that of a start.

    From Unreachable on its pod is ready, that is, its ClickHouse answers; Draining is a pod that ends.
    """

    MISSING = "Missing"
    PENDING = "Pending"
    UNREACHABLE = "Unreachable"
    STARTING = "Starting"
    REPLAYING = "Replaying"
    STOPPED = "Stopped"
    CONSUMING = "Consuming"
    SUSPENDED = "Suspended"
    DRAINING = "Draining"


@dataclass(frozen=True, slots=True)
class StreamSeen:
    """A stream as its owner reports it: `name` is cluster/topic/partition, `phase` as in the aggregator's /status.

    `drained`: everything up to the end of the log is stored and nothing is in flight. `why` is the reason of
    a stopped stream. `in_flight` are the tables of which a block is on its way. `cold`: its owner has stored nothing of
    it yet, and could: messages wait, and nothing is in their way.
    """

    name: str
    phase: str
    drained: bool = False
    why: str = ""
    in_flight: frozenset[str] = frozenset()
    cold: bool = False


@dataclass(frozen=True, slots=True)
class TableSeen:
    """A table as an aggregator reports it. `hazards` are (reason, text). `rollout` pauses it since `paused_since_ms`,
    Unix milliseconds; empty when none does. Not `checked`: unavailable until the aggregator can compare it with its
    server, which may not answer. `as_declared` names the declaration that it is known to equal; empty: not known."""

    name: str
    schema_revision: int = 0
    unavailable: bool = False
    checked: bool = True
    why: str = ""
    hazards: tuple[tuple[str, str], ...] = ()
    rollout: str = ""
    paused_since_ms: int = 0
    as_declared: str = ""


@dataclass(frozen=True, slots=True)
class AggregatorSeen:
    """One answer of an aggregator's /status. `clusters` has the trouble of Kafka clusters that do not answer it."""

    ready: bool
    streams: tuple[StreamSeen, ...] = ()
    suspended: bool = False
    clusters: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[TableSeen, ...] = ()
    restart_demanded: int = 0
    """Number of the last demand to restart."""
    restart_seen: int = 0
    """Number of the demand that was the last when it started."""


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A replica's pod. `ready` is ClickHouse's readiness alone; `trouble` is why a container or the pod waits.
    `restart_demanded`: a person asked for its restart; `secure`: its admin API speaks TLS. `ends_by`: until when it has
    time to end (RFC 3339), empty unless it is terminating."""

    ready: bool
    secure: bool = False
    terminating: bool = False
    spec_hash: str = ""
    restart_demanded: bool = False
    restarts: int = 0
    trouble: str = ""
    node: str = ""
    ends_by: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaSeen:
    """A replica of a zone that this operator serves: its StatefulSet, its pod, its aggregator.

    `scale` is what the StatefulSet asks for, None where there is none. `aggregator` is None while it does not answer,
    `silence` is why.
    """

    name: str
    zone: str
    desired_spec_hash: str = ""
    former_spec_hash: str = ""
    """What an earlier operator called the same spec: a pod of it is up to date, too."""
    scale: int | None = None
    pod: PodSeen | None = None
    aggregator: AggregatorSeen | None = None
    silence: str = ""

    @property
    def secure(self) -> bool:
        """Whether its admin API speaks TLS."""
        return self.pod is not None and self.pod.secure

    def state(self) -> State:
        """What it does, the earliest stage of its start that is not over."""
        if self.scale is None and self.pod is None:
            return State.MISSING
        if self.pod is None:
            return State.PENDING
        if self.pod.terminating:
            return State.DRAINING
        if not self.pod.ready:
            return State.PENDING
        if self.aggregator is None:
            return State.UNREACHABLE
        if self.aggregator.suspended:
            return State.SUSPENDED
        phases = {stream.phase for stream in self.aggregator.streams}
        if not self.aggregator.ready or "STARTING" in phases:
            return State.STARTING
        if "REPLAY" in phases:
            return State.REPLAYING
        return State.STOPPED if "STOPPED" in phases else State.CONSUMING

    @property
    def restart_due(self) -> int:
        """The demand to restart which its aggregator has not followed yet; 0 when there is none."""
        known = self.aggregator
        return known.restart_demanded if known is not None and known.restart_seen < known.restart_demanded else 0

    @property
    def paused_table(self) -> str:
        """A table that a rollout pauses, as its aggregator reports; empty without one."""
        tables = self.aggregator.tables if self.aggregator is not None else ()
        return next((table.name for table in tables if table.rollout), "")

    @property
    def outdated(self) -> bool:
        """Whether its pod is to be replaced: it was created from another spec than the present one, or a person asked
        for it. A missing pod is created by itself."""
        if self.pod is None or self.pod.terminating:
            return False
        former = self.pod.spec_hash == self.former_spec_hash != ""
        return (self.pod.spec_hash != self.desired_spec_hash and not former) or self.pod.restart_demanded


@dataclass(frozen=True, slots=True)
class Gap:
    """What lies between a replica's table and its declaration, as the aggregator beside it reports."""

    exists: bool
    added: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableAt:
    """A declared table at one replica, also in reports of zones: the names of fields are stored in ZooKeeper.
    Without `gap` nothing is known; `silence` is what is not known, and why.

    `ddl` is a digest of the declaration that `gap` is about. `rollout` pauses the table there since `held_since_ms`,
    Unix milliseconds; `revision` is that of the schema; `busy`: a block of it is in flight; `why` it is not loaded.
    `served`: by this operator.
    """

    replica: str
    gap: Gap | None = None
    silence: str = ""
    ready: bool = True
    ddl: str = ""
    rollout: str = ""
    held_since_ms: int = 0
    busy: bool = False
    revision: int = 0
    why: str = ""
    served: bool = True
    restart_due: bool = False
    """Its aggregator is still to restart after a change."""


@dataclass(frozen=True, slots=True)
class ZoneReport:
    """What the operator of another zone reports about its replicas of the shard, through ZooKeeper."""

    zone: str
    states: Mapping[str, State]
    streams: tuple[StreamSeen, ...] = ()
    tables: Mapping[str, tuple[TableAt, ...]] = field(default_factory=dict)
    """Each declared table at each replica of the zone."""


@dataclass(frozen=True, slots=True)
class BegunStep:
    """The step of a rollout that was begun: kept in the shard's status, so that a restarted operator continues."""

    replica: str
    since_seconds: float
    """How long ago it was begun."""
    aggregator_only: bool = False
    """Only its aggregator restarts, because tables were changed."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A rebuild that was begun: `claim` is the UID of the volume claim to be replaced, empty when none is."""

    replica: str
    claim: str = ""


@dataclass(frozen=True, slots=True)
class RebuildSeen:
    """What may need a rebuild. `claims` are UIDs of volume claims by replica; `lost` and `returned` are replicas whose
    volume is lost, or was retained by a removal that took them out of ZooKeeper; `unproven` those of them that were
    removed before others had their data; `empty` are tables that a replica's
    server does not have although it is registered for them, by replica and path; `asked` is the annotation."""

    claims: Mapping[str, str] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()
    unproven: frozenset[str] = frozenset()
    empty: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    asked: str = ""
    begun: Rebuild | None = None


@dataclass(frozen=True, slots=True)
class ShardSeen:
    """A shard at one moment.

    `replicas` are those of the spec in the served zones, `surplus` those that exist and are not desired any more,
    `elsewhere` the reports of other zones that are fresh; `silent_zones` those without one. `claimed_by` is who holds
    the shard's right to restart a replica across zones: empty where no one does, or where one operator serves all.
    """

    replicas: tuple[ReplicaSeen, ...]
    surplus: tuple[ReplicaSeen, ...] = ()
    elsewhere: tuple[ZoneReport, ...] = ()
    silent_zones: tuple[str, ...] = ()
    begun: BegunStep | None = None
    overdue: Mapping[str, float] = field(default_factory=dict)
    """Seconds since the pods of these replicas should have ended, their grace period included."""
    claimed_by: str = ""
    busy_shards: int = 0
    """Other shards of the pipeline in which a step of a rollout was begun."""
    outside_window: str = ""
    """When restarts may begin again; empty while they may."""
    zookeeper_trouble: str = ""
    quorum_waits: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which a part of a table has waited for its quorum, for tables where one waits."""
    had_quorum: bool = True
    """Whether so many replicas were ready once that there was a quorum, which can then be lost."""
    kafka_trouble: Mapping[str, str] = field(default_factory=dict)
    missing_references: tuple[str, ...] = ()
    """Secrets and ConfigMaps, or keys in them, that the spec refers to and that are not there."""
    replication: ReplicationSeen | None = None
    """How far each replica is; observed only when a replica is to leave or to be rebuilt."""
    rebuild: RebuildSeen | None = None
    """What may need a rebuild; None where nothing does."""
    accepted_loss: str = ""
    """The replica whose data may be lost, as a person confirmed."""
    too_large: tuple[str, ...] = ()
    """Volumes that are larger than in the spec, a sentence each."""
    taken: tuple[str, ...] = ()
    """Objects of needed names that belong to another owner."""
    refused: tuple[str, ...] = ()
    """What the API server refused to let us do."""
    paused: bool = False
    """Whether it is only observed: nothing of it is compared with the spec but its pods."""

    def states(self) -> dict[str, State]:
        """What every desired and known replica does, other zones included."""
        found = {replica.name: replica.state() for replica in self.replicas}
        for report in self.elsewhere:
            found.update(report.states)
        return found

    def streams(self) -> dict[str, StreamSeen]:
        """Every stream that has an owner."""
        owned: dict[str, StreamSeen] = {}
        for report in self.elsewhere:
            owned.update({stream.name: stream for stream in report.streams})
        for replica in (*self.surplus, *self.replicas):
            if replica.aggregator is not None:
                owned.update({stream.name: stream for stream in replica.aggregator.streams})
        return owned
