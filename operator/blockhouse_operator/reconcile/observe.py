"""Observe a shard: Kubernetes, its aggregators, ZooKeeper. Whatever does not answer becomes a word in what was seen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.ensemble import Ensemble
from blockhouse_operator.adapters.kinds import Object
from blockhouse_operator.adapters.pipeline_http import AdminLogin
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels
from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.api.status import AGGREGATOR_RESTART
from blockhouse_operator.decide.paths import replication_paths
from blockhouse_operator.decide.restarts import outside_windows
from blockhouse_operator.decide.seen import BegunStep, ReplicaSeen, ShardSeen, TableAt, ZoneReport
from blockhouse_operator.decide.shard_conditions import had_quorum
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.snapshot import ShardSnapshot


@dataclass(frozen=True)
class ShardLook:
    """A shard as seen, and the live pods that steps are about, by replica."""

    seen: ShardSeen
    pods: Mapping[str, Object] = field(default_factory=dict)


async def observe_shard(
    services: Services,
    shard: ClickHouseShardIngest,
    snapshot: ShardSnapshot,
    contents: Contents,
    missing: Sequence[str],
    tables: Mapping[str, tuple[TableAt, ...]],
) -> ShardSeen:
    """`missing` are the references of the spec that are not there, `tables` what was seen of each table last."""
    login = contents.admin_login(shard.spec.pipeline, shard.spec.admin_tls)
    known = (*snapshot.replicas, *snapshot.surplus)
    asked = [replica for replica in known if replica.name in snapshot.running]
    whole = services.fresh or _leaves(services, shard)
    answers = await asyncio.gather(*(_ask(services, shard, replica, login, whole=whole) for replica in asked))
    heard = {replica.name: replica for replica in (*known, *answers)}
    seen = ShardSeen(
        replicas=tuple(heard[replica.name] for replica in snapshot.replicas),
        surplus=tuple(heard[replica.name] for replica in snapshot.surplus),
        begun=begun_step_of(shard, services.wall()),
        overdue=overdue_pods(known, services.wall()),
        kafka_trouble=_kafka_trouble(answers),
        missing_references=tuple(missing),
        had_quorum=had_quorum(shard.status.conditions),
        outside_window=outside_windows(shard.spec.rollout.windows, services.wall()),
        accepted_loss=shard.annotations.get(labels.ACCEPT_DATA_LOSS, ""),
    )
    return await _observe_zookeeper(services, shard, contents, seen, tables)


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


def admin_base(services: Services, shard: ClickHouseShardIngest, seen: ShardSeen, name: str) -> str:
    """Where the aggregator of a replica is asked, by TLS where its pod speaks it."""
    secure = any(each.name == name and each.secure for each in (*seen.replicas, *seen.surplus))
    return services.endpoints.aggregator(name, shard.namespace, secure=secure)


def _leaves(services: Services, shard: ClickHouseShardIngest) -> bool:
    """Whether the shard is to be removed once it is drained: then operators of other zones are informed of that."""
    return shard.name in services.leaving.get(f"{shard.namespace}/{shard.spec.pipeline}", ())


async def _ask(
    services: Services, shard: ClickHouseShardIngest, replica: ReplicaSeen, login: AdminLogin, *, whole: bool
) -> ReplicaSeen:
    try:
        base = services.endpoints.aggregator(replica.name, shard.namespace, secure=replica.secure)
        answer = await services.http.aggregator(base, login, whole=whole)
    except Retryable as error:
        return replace(replica, silence=str(error))
    return replace(replica, aggregator=answer)


def begun_step_of(shard: ClickHouseShardIngest, now: datetime) -> BegunStep | None:
    """The step of a rollout that was begun, by the shard's status."""
    begun = shard.status.rollout
    if begun is None or not begun.replica:
        return None
    since = _seconds_since(begun.since, now)
    return BegunStep(begun.replica, since, aggregator_only=begun.step == AGGREGATOR_RESTART)


def overdue_pods(replicas: Sequence[ReplicaSeen], now: datetime) -> dict[str, float]:
    """For how many seconds pods should have been gone, by replica: a `deletionTimestamp` includes the grace period."""
    ending = {replica.name: replica.pod.ends_by for replica in replicas if replica.pod is not None}
    passed = {name: _seconds_since(ends_by, now) for name, ends_by in ending.items() if ends_by}
    return {name: seconds for name, seconds in passed.items() if seconds > 0}


def _seconds_since(moment: str, now: datetime) -> float:
    """0 where `moment` is no time."""
    try:
        return (now - datetime.fromisoformat(moment)).total_seconds()
    except ValueError:
        return 0.0


def _kafka_trouble(replicas: Sequence[ReplicaSeen]) -> dict[str, str]:
    """Kafka clusters that an aggregator cannot reach."""
    found: dict[str, str] = {}
    for replica in replicas:
        if replica.aggregator is not None:
            found.update(replica.aggregator.clusters)
    return found


async def _observe_zookeeper(
    services: Services,
    shard: ClickHouseShardIngest,
    contents: Contents,
    seen: ShardSeen,
    tables: Mapping[str, tuple[TableAt, ...]],
) -> ShardSeen:
    spec, others = shard.spec, other_zones(services, shard)
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
            return
        reports = await asyncio.to_thread(ensemble.reports, root, spec.shard, others)
        claimed_by = await asyncio.to_thread(ensemble.claimed_by, root, spec.shard)
        if not services.dry_run:
            for report in own_reports(seen, tables):
                await asyncio.to_thread(ensemble.report, root, spec.shard, report)

    try:
        ensemble = ensemble_of(services, shard, contents)
        if services.fresh or others:
            await services.troubles.ask(server, ask)
        else:
            services.troubles.raise_known(server)
            quorums = services.ensembles.quorums(ensemble, services.clock, services.resync)
            waits = await quorums.waits(root, paths, partial(services.troubles.ask, server))
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
