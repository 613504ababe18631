"""Why does a table's quorum not clear, and may it be cleared? The pure decision behind `blockhouse quorum`.

Pure: no I/O, no clock. It must never call a part lost that an active replica holds or that any replica will still ask
for: abandoning such a part may throw away rows that a server is about to acknowledge, or leave a replica asking for it
indefinitely. Every doubt is a refusal with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from blockhouse_aggregator.clickhouse.shard_columns import Lacking, words


@dataclass(frozen=True, slots=True)
class PendingPart:
    """A part that waits for its quorum. `path` and `version` are of its node, `since_ms` its creation in
    Unix milliseconds of the ensemble; `listed` are the replicas it names; `blocks` the nodes of its deduplication."""

    name: str
    path: str
    version: int
    since_ms: int
    required: int
    listed: frozenset[str]
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica as its nodes describe it. The three sets hold names of pending parts.

    `holds`: it has the part, or one that covers it. `queued`: an entry of its queue will fetch the part. `unread`: it
    has not read a log entry yet that will. `host_path` and `host_version` change when the replica becomes active.
    `address` is (host, native port), None when the node has none. `lacks`: columns that only its shard has.
    """

    name: str
    active: bool
    host_path: str
    host_version: int
    address: tuple[str, int] | None = None
    holds: frozenset[str] = frozenset()
    queued: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    queue_length: int = 0
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuorumState:
    """A table's quorum at one moment. `table_path` is the table's node, chroot included; `replicas_version` changes
    when a replica is added; `failed` are parts that were abandoned before."""

    table_path: str
    replicas_version: int
    pending: tuple[PendingPart, ...]
    replicas: tuple[ReplicaState, ...]
    failed: tuple[str, ...] = ()


class Cause(StrEnum):
    """Why a part still waits. `docs/clickhouse.md` has a row for each."""

    IN_PROGRESS = "InProgress"
    QUORUM_MET = "QuorumMet"
    TOO_FEW_REPLICAS = "TooFewReplicas"
    NOT_FETCHED = "NotFetched"
    COLUMN_MISSING = "ColumnMissing"
    WRITER_LOST = "WriterLost"
    ORPHANED = "Orphaned"


@dataclass(frozen=True, slots=True)
class StartFetches:
    """`SYSTEM START FETCHES` on these replicas: one of them asks for the part, finds it nowhere and gives it up by
    itself."""

    replicas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RestartReplica:
    """`SYSTEM RESTART REPLICA` on this one: it holds the part, and records that in ZooKeeper when it starts."""

    replica: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """Move the part to `failed_parts` and forget its hash, in one transaction that fails if any replica came back: what
    a replica does that finds the part nowhere."""


Remedy = StartFetches | RestartReplica | Abandon


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one pending part. Without `remedy` nothing may be done, and `text` is what to do instead."""

    part: PendingPart
    cause: Cause
    text: str
    remedy: Remedy | None = None

    @property
    def stuck(self) -> bool:
        return self.cause is not Cause.IN_PROGRESS


def diagnose(state: QuorumState, now_ms: int, patience: float) -> tuple[Finding, ...]:
    """A finding for each pending part. `patience`: seconds a part may wait before anything is wrong."""
    return tuple(_diagnose(part, state.replicas, now_ms, patience) for part in state.pending)


def _diagnose(part: PendingPart, replicas: tuple[ReplicaState, ...], now_ms: int, patience: float) -> Finding:
    holders = [r for r in replicas if part.name in r.holds]
    age = (now_ms - part.since_ms) / 1000
    if age < patience:
        text = f"written {max(0.0, age):.0f} s ago, within the {patience:.0f} s a quorum may take: nothing is wrong yet"
        return Finding(part, Cause.IN_PROGRESS, text)
    if len(holders) >= part.required:
        return _met(part, holders)
    if any(r.active for r in holders):
        return _held(part, replicas, holders)
    return _lost(part, replicas, holders)


def _met(part: PendingPart, holders: list[ReplicaState]) -> Finding:
    """Enough replicas have it and the node does not list them: one died between its fetch and its report."""
    text = f"{_names(holders)} have it, which is a quorum of {part.required}, but its node lists {_listed(part)}"
    silent = [r for r in holders if r.active and r.name not in part.listed]
    if not silent:
        unavailable = [r for r in holders if r.name not in part.listed] or holders
        return Finding(part, Cause.QUORUM_MET, f"{text}; start {_names(unavailable)}, which reports it when it is up")
    return Finding(part, Cause.QUORUM_MET, text, RestartReplica(silent[0].name))


def _held(part: PendingPart, replicas: tuple[ReplicaState, ...], holders: list[ReplicaState]) -> Finding:
    """An active replica has the part: its rows are not lost, and giving it up would lose them."""
    active = [r for r in replicas if r.active]
    holding = f"{_names([r for r in holders if r.active])} has it and is active: giving it up would lose its rows"
    if len(active) < part.required:
        text = f"only {_names(active)} of {len(replicas)} replicas is active, the quorum is {part.required}; {holding}"
        return Finding(part, Cause.TOO_FEW_REPLICAS, f"{text}; start the others")
    others = [r for r in active if part.name not in r.holds]
    if without := [r for r in others if r.lacks]:
        lacks = words([Lacking(r.name, r.lacks) for r in without])
        text = (
            f"{lacks}, so it cannot fetch what is written with it; {holding}; an ALTER TABLE ... ADD COLUMN was not"
            " carried out there: end what holds it up there (system.processes), or run it there again"
        )
        return Finding(part, Cause.COLUMN_MISSING, text)
    asking = [r for r in others if part.name in r.queued]
    if not asking:
        text = f"{_names(others)} is active but does not ask for it; {holding}; `SYSTEM RESTART REPLICA` there"
        return Finding(part, Cause.NOT_FETCHED, text)
    text = (
        f"{_names(asking)} does not fetch it; {holding}; remove the cause there (`SYSTEM START FETCHES`, disk, network)"
    )
    return Finding(part, Cause.NOT_FETCHED, text)


def _lost(part: PendingPart, replicas: tuple[ReplicaState, ...], holders: list[ReplicaState]) -> Finding:
    """No active replica has the part. Its rows were never reported as stored: they are sent again."""
    where = f"only {_names(holders)} has it and is unavailable" if holders else "no replica has it"
    asking = [r for r in replicas if part.name in r.queued | r.unread]
    able = tuple(r.name for r in asking if r.active and part.name in r.queued)
    if able:
        text = f"{where}; {', '.join(able)} asks for it and gives it up as soon as it fetches again"
        return Finding(part, Cause.WRITER_LOST, text, StartFetches(able))
    if asking:
        text = (
            f"{where}; {_names(asking)} would ask for it indefinitely if it were abandoned now: "
            "start that replica, which gives it up by itself, or drop it from ZooKeeper if it never comes back"
        )
        return Finding(part, Cause.WRITER_LOST, text)
    text = f"{where}, and no replica will ask for it (its partition was dropped meanwhile?): it can never clear"
    return Finding(part, Cause.ORPHANED, text, Abandon())


def _names(replicas: list[ReplicaState]) -> str:
    return ", ".join(r.name for r in replicas) or "no replica"


def _listed(part: PendingPart) -> str:
    return ", ".join(sorted(part.listed)) or "no replica"
