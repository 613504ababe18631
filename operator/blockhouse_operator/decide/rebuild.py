"""How a replica gets its data again whose volume is empty, lost, or no longer known to ZooKeeper: cloned from others.

Only when others are proven to have its data is its registration dropped or its volume replaced; else it is refused
with a condition. Every step is decided from what is there and from the one record in the shard's status, so a restarted
operator continues. One replica at a time, and no other restart meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.labels import ACCEPT_DATA_LOSS, REBUILD_REPLICA
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.decide.deferred import RestartDeferred, awaits_end
from blockhouse_operator.decide.removal import Unregister
from blockhouse_operator.decide.replication import alive_everywhere, behind, copies
from blockhouse_operator.decide.seen import Rebuild, RebuildSeen, ReplicaSeen, ShardSeen

LOST = "its volume is lost"
RETURNED = "its volume returned after ZooKeeper had forgotten it"
EMPTY = "its volume is empty"
ASKED = "a rebuild was asked for"


@dataclass(frozen=True, slots=True)
class BeginRebuild:
    """Note in the status that this replica is rebuilt, before anything of it is touched."""

    replica: str
    why: str
    claim: str = ""


@dataclass(frozen=True, slots=True)
class ReplaceVolume:
    """Delete its volume claim, if it still is the one of this UID: a new, empty one is created in its place."""

    replica: str
    why: str
    claim: str


@dataclass(frozen=True, slots=True)
class RestoreReplica:
    """Let its server register its tables again from what is on the volume (ClickHouse 21.8 and newer)."""

    replica: str
    why: str


@dataclass(frozen=True, slots=True)
class EndRebuild:
    """It has caught up: other steps may begin."""

    replica: str
    why: str


RebuildStep = BeginRebuild | ReplaceVolume | RestoreReplica | EndRebuild | Unregister | RestartDeferred


def plan_rebuild(spec: ClickHouseShardIngestSpec, seen: ShardSeen) -> tuple[RebuildStep, ...]:
    """The next steps, in order; empty when no replica needs a rebuild."""
    found = seen.rebuild
    if found is None or spec.clickhouse.managed is None:
        return ()
    ours = {replica.name: replica for replica in seen.replicas}
    if found.begun is not None:
        replica = ours.get(found.begun.replica)
        if replica is None:
            return (EndRebuild(found.begun.replica, "it is not in the spec"),)
        return tuple(_continue(spec, seen, found, found.begun, replica))
    for name, why, claim in _candidates(found):
        if name in ours:
            if why == RETURNED and (first := _restorable(ours[name])) is not None:
                return (first,)
            deferred = _may_begin(seen, name, why) or not_proven(spec, seen, name, why)
            return (deferred or BeginRebuild(name, why, claim),)
    if found.asked and found.asked not in spec.replica_names():
        text = f"the annotation {REBUILD_REPLICA} names {found.asked}, which is no replica of this shard"
        return (RestartDeferred(Reason.REBUILDING, text),)
    return ()


def _candidates(found: RebuildSeen) -> Iterator[tuple[str, str, str]]:
    """Replica, why, and the claim to be replaced; what is lost already before what a person asks for."""
    for name in sorted(found.lost):
        yield name, LOST, found.claims.get(name, "")
    for name in sorted(found.returned):
        yield name, RETURNED, found.claims.get(name, "")
    for name in sorted(found.empty):
        yield name, EMPTY, ""
    if found.asked:
        yield found.asked, ASKED, found.claims.get(found.asked, "")


def _restorable(replica: ReplicaSeen) -> RebuildStep | None:
    """A server that runs with a volume that ZooKeeper does not know can register its tables again; an old one ends
    instead of starting, and its volume is replaced."""
    if replica.pod is not None and replica.pod.ready:
        return RestoreReplica(replica.name, RETURNED)
    if replica.pod is None or not (replica.pod.restarts or replica.pod.trouble):
        return RestartDeferred(
            Reason.REBUILDING, f"replica {replica.name}: {RETURNED}; waiting to see whether its server starts"
        )
    return None


def _may_begin(seen: ShardSeen, name: str, why: str) -> RestartDeferred | None:
    if seen.begun is not None and seen.begun.replica != name:
        return RestartDeferred(Reason.REBUILDING, f"replica {name}: {why}; {seen.begun.replica} is restarting first")
    if seen.silent_zones:
        zone = seen.silent_zones[0]
        return RestartDeferred(Reason.REBUILDING, f"replica {name}: {why}; waiting for the operator of zone {zone}")
    return None


def not_proven(spec: ClickHouseShardIngestSpec, seen: ShardSeen, name: str, why: str) -> RestartDeferred | None:
    """Why others are not known to have the data of a replica; None when they have. A block is acknowledged with
    `quorum` copies, of which the replica's own may be one."""
    if seen.accepted_loss == name:
        return None
    if seen.zookeeper_trouble or seen.replication is None:
        trouble = seen.zookeeper_trouble or "the state of replication is not known yet"
        return RestartDeferred(Reason.ZOOKEEPER_UNREACHABLE, f"replica {name}: {why}; {trouble}")
    way_out = f"if its rows are not needed, annotate the shard's ClickHouseShardIngest with {ACCEPT_DATA_LOSS}={name}"
    if unknown := seen.replication.unknown:
        tables = ", ".join(unknown[:4])
        text = f"replica {name}: {why}; the path in ZooKeeper of {tables} is not known; {way_out}"
        return RestartDeferred(Reason.DATA_NOT_ELSEWHERE, text, stalled=True)
    needed = max(1, spec.quorum - 1)
    others = [replica.name for replica in spec.replicas if replica.name != name]
    found = copies(name, others, needed, seen.replication)
    alive = alive_everywhere(others, seen.replication)
    unproven = seen.rebuild is not None and name in seen.rebuild.unproven
    if why == LOST or (len(alive) >= needed and not unproven and not seen.replication.absent):
        if len(found.complete) >= needed:
            return None
    elif unproven:
        text = f"replica {name}: {why}, and it was removed before others had its data; {way_out}"
        return RestartDeferred(Reason.DATA_NOT_ELSEWHERE, text, stalled=True)
    lacking = "; ".join(f"{other} {what}" for other, what in sorted(found.lacking.items())[:4])
    lacking = lacking or f"no replica has {', '.join(seen.replication.absent[:4]) or 'every table active'}"
    text = f"replica {name}: {why}, and its data is not proven to be on {needed} others: {lacking}; {way_out}"
    return RestartDeferred(Reason.DATA_NOT_ELSEWHERE, text, stalled=True)


def _continue(
    spec: ClickHouseShardIngestSpec, seen: ShardSeen, found: RebuildSeen, begun: Rebuild, replica: ReplicaSeen
) -> Iterator[RebuildStep]:
    name = replica.name
    if begun.claim and found.claims.get(name) == begun.claim:
        yield from _replace(spec, seen, begun, replica)
        return
    if name in found.empty:
        deferred = not_proven(spec, seen, name, EMPTY)
        yield deferred or Unregister(name, "its tables are cloned from others", found.empty[name])
        return
    if seen.zookeeper_trouble or seen.replication is None:
        yield RestartDeferred(Reason.REBUILDING, f"replica {name} is rebuilt; {seen.zookeeper_trouble or 'waiting'}")
        return
    others = [other.name for other in spec.replicas if other.name != name]
    if left := behind(name, others, seen.replication):
        yield RestartDeferred(Reason.REBUILDING, f"replica {name} is rebuilt from others: {left}")
        return
    yield EndRebuild(name, "it has caught up with the others")


def _replace(
    spec: ClickHouseShardIngestSpec, seen: ShardSeen, begun: Rebuild, replica: ReplicaSeen
) -> Iterator[RebuildStep]:
    """Once its StatefulSet has no pod, drop the registration, and the volume last."""
    if replica.scale or replica.pod is not None:
        yield awaits_end(seen, replica, Reason.REBUILDING, f"replica {replica.name} is ending, to be rebuilt")
    else:
        deferred = not_proven(spec, seen, replica.name, "its volume is to be replaced")
        if deferred is not None:
            yield deferred
            return
        yield Unregister(replica.name, "it is cloned from others")
        yield ReplaceVolume(replica.name, "it is cloned from others", begun.claim)
