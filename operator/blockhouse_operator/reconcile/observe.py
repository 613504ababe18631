"""Look at a shard: Kubernetes, its aggregators, ZooKeeper. Whatever does not answer becomes a word in what was seen."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.ensemble import Ensemble
from blockhouse_operator.adapters.kinds import POD, STATEFUL_SET, VOLUME_CLAIM, Object
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.api.shard import Replica
from blockhouse_operator.api.status import AGGREGATOR_RESTART
from blockhouse_operator.decide.paths import replication_paths
from blockhouse_operator.decide.pods import pod_seen, running
from blockhouse_operator.decide.restarts import closed
from blockhouse_operator.decide.seen import ReplicaSeen, ShardSeen, TableAt, Turn, ZoneReport
from blockhouse_operator.decide.shard_conditions import had_quorum
from blockhouse_operator.desired.revision import former_revision, revision
from blockhouse_operator.desired.shard import served_replicas
from blockhouse_operator.reconcile.children import Children
from blockhouse_operator.reconcile.services import Services


@dataclass(frozen=True)
class ShardLook:
    """A shard as seen, and the live objects that steps are about."""

    seen: ShardSeen
    pods: Mapping[str, Object] = field(default_factory=dict)
    """By replica."""


async def look_at_shard(
    services: Services,
    shard: ClickHouseShardIngest,
    live: Children,
    contents: Contents,
    missing: Sequence[str],
    tables: Mapping[str, tuple[TableAt, ...]],
    pods: Mapping[str, Object],
) -> ShardLook:
    """`pods` are those of `list_pods`, `missing` the references of the spec that are not there, `tables` what was seen
    of each table last."""
    spec = shard.spec
    served = served_replicas(shard, services.zones)
    token = contents.admin_token(spec.pipeline)
    replicas = [_replica(shard, replica, live, pods) for replica in served]
    desired_names = {replica.name for replica in spec.replicas}
    surplus = [_surplus(name, live, pods) for name in replicas_of(live, shard.owners()) if name not in desired_names]
    asked = await asyncio.gather(
        *(_ask(services, shard.namespace, replica, pods.get(replica.name), token) for replica in [*replicas, *surplus])
    )
    seen = ShardSeen(
        replicas=tuple(asked[: len(replicas)]),
        surplus=tuple(asked[len(replicas) :]),
        turn=turn_of(shard, services.wall()),
        kafka_trouble=_kafka_trouble(asked),
        missing_references=tuple(missing),
        had_quorum=had_quorum(shard.status.conditions),
        closed=closed(spec.rollout.windows, services.wall()),
        accepted_loss=shard.annotations.get(labels.ACCEPT_DATA_LOSS, ""),
    )
    return ShardLook(await _look_at_zookeeper(services, shard, contents, seen, tables), pods)


async def list_pods(services: Services, shard: ClickHouseShardIngest) -> dict[str, Object]:
    """The pods of a shard, by replica."""
    of_shard = labels.of_shard(shard.spec.pipeline, shard.spec.shard)
    return {
        (pod["metadata"].get("labels") or {}).get(labels.REPLICA, ""): pod
        for pod in await services.kubernetes.list(POD, shard.namespace, of_shard)
    }


def ensemble_of(services: Services, shard: ClickHouseShardIngest, contents: Contents) -> Ensemble:
    """The shard's ensemble. Raises Retryable while a Secret of its login or of its certificates is missing."""
    spec = shard.spec.zookeeper
    try:
        return services.ensembles.of(contents.zookeeper(spec))
    except KeyError as error:
        missing = f"ZooKeeper ensemble {spec.name}: {error.args[0]} is missing"
        raise Retryable(missing, after=5.0, reason=Reason.SECRET_MISSING.value) from None


def other_zones(services: Services, shard: ClickHouseShardIngest) -> tuple[str, ...]:
    """Zones with replicas of the shard that another operator serves."""
    zones = {replica.zone for replica in shard.spec.replicas}
    return tuple(sorted(zones - services.zones)) if services.zones is not None else ()


def replicas_of(live: Children, owners: Collection[str]) -> list[str]:
    """Replicas that exist: those with a StatefulSet, and those of which a volume claim of ours is left."""
    found = {name for kind, name in live if kind == STATEFUL_SET.name}
    for (kind, _), claim in live.items():
        mine = any(owner["uid"] in owners for owner in claim["metadata"].get("ownerReferences", ()))
        replica = (claim["metadata"].get("labels") or {}).get(labels.REPLICA)
        if kind == VOLUME_CLAIM.name and mine and replica and not claim["metadata"].get("deletionTimestamp"):
            found.add(replica)
    return sorted(found)


def _replica(shard: ClickHouseShardIngest, desired: Replica, live: Children, pods: Mapping[str, Object]) -> ReplicaSeen:
    found, pod = live.get((STATEFUL_SET.name, desired.name)), pods.get(desired.name)
    return ReplicaSeen(
        name=desired.name,
        zone=desired.zone,
        desired_revision=revision(shard.spec, desired),
        former_revision=former_revision(shard.spec, desired),
        scale=found["spec"].get("replicas", 1) if found else None,
        pod=pod_seen(pod, shard.status.restart) if pod else None,
    )


def _surplus(name: str, live: Children, pods: Mapping[str, Object]) -> ReplicaSeen:
    pod, found = pods.get(name), live.get((STATEFUL_SET.name, name))
    object_ = found or live[VOLUME_CLAIM.name, names.claim(name)]
    zone = (object_["metadata"].get("labels") or {}).get(labels.ZONE, "")
    scale = found["spec"].get("replicas", 1) if found else None
    return ReplicaSeen(name=name, zone=zone, scale=scale, pod=pod_seen(pod) if pod else None)


async def _ask(services: Services, namespace: str, replica: ReplicaSeen, pod: Object | None, token: str) -> ReplicaSeen:
    if pod is None or not running(pod):
        return replica
    try:
        answer = await services.http.aggregator(services.endpoints.aggregator(replica.name, namespace), token)
    except Retryable as error:
        return replace(replica, silence=str(error))
    return replace(replica, aggregator=answer)


def turn_of(shard: ClickHouseShardIngest, now: datetime) -> Turn | None:
    """The step of a rollout that was begun, by the shard's status."""
    begun = shard.status.rollout
    if begun is None or not begun.replica:
        return None
    try:
        since = (now - datetime.fromisoformat(begun.since)).total_seconds()
    except ValueError:
        since = 0.0
    return Turn(begun.replica, since, aggregator_only=begun.step == AGGREGATOR_RESTART)


def _kafka_trouble(replicas: Sequence[ReplicaSeen]) -> dict[str, str]:
    """Kafka clusters that an aggregator cannot reach."""
    found: dict[str, str] = {}
    for replica in replicas:
        if replica.aggregator is not None:
            found.update(replica.aggregator.clusters)
    return found


async def _look_at_zookeeper(
    services: Services,
    shard: ClickHouseShardIngest,
    contents: Contents,
    seen: ShardSeen,
    tables: Mapping[str, tuple[TableAt, ...]],
) -> ShardSeen:
    spec, others = shard.spec, other_zones(services, shard)
    try:
        ensemble = ensemble_of(services, shard, contents)
    except Retryable as error:
        return replace(seen, zookeeper_trouble=str(error), silent_zones=others)
    server = "zookeeper " + ",".join(spec.zookeeper.servers)
    root = spec.zookeeper.root
    reports: tuple[ZoneReport, ...] = ()
    claimed_by = ""
    waits: Mapping[str, float] = {}
    paths = {table: path for table, path in replication_paths(spec, contents.declaration).items() if path}

    async def ask() -> None:
        nonlocal reports, claimed_by, waits
        waits = await asyncio.to_thread(ensemble.quorum_waits, root, paths)
        if not others:
            await asyncio.to_thread(ensemble.check)
            return
        reports = await asyncio.to_thread(ensemble.reports, root, spec.shard, others)
        claimed_by = await asyncio.to_thread(ensemble.claimed_by, root, spec.shard)
        if not services.dry_run:
            for report in own_reports(seen, tables):
                await asyncio.to_thread(ensemble.report, root, spec.shard, report)

    try:
        await services.troubles.ask(server, ask)
    except Retryable as error:
        return replace(seen, zookeeper_trouble=str(error), silent_zones=others)
    heard = {report.zone for report in reports}
    silent = tuple(zone for zone in others if zone not in heard)
    return replace(seen, elsewhere=reports, silent_zones=silent, claimed_by=claimed_by, quorum_waits=waits)


def own_reports(seen: ShardSeen, tables: Mapping[str, tuple[TableAt, ...]]) -> list[ZoneReport]:
    """What is reported of ours to the operators of other zones."""
    zones = sorted({replica.zone for replica in seen.replicas})
    return [
        ZoneReport(
            zone=zone,
            states={r.name: r.state() for r in seen.replicas if r.zone == zone},
            streams=tuple(s for r in seen.replicas if r.zone == zone and r.aggregator for s in r.aggregator.streams),
            tables={
                name: tuple(at for at in ats if at.replica in {r.name for r in seen.replicas if r.zone == zone})
                for name, ats in tables.items()
            },
        )
        for zone in zones
    ]
