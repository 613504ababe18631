"""One reconcile of a ClickHouseShardIngest: look, apply what is missing, take the next step, report how it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.kinds import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    SERVICE,
    SHARD_INGEST,
    STATEFUL_SET,
    VOLUME_CLAIM,
    Object,
)
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.conditions import ConditionType, Reason, condition
from blockhouse_operator.api.resource import ClickHouseShardIngest, InvalidSpec, parse_shard_ingest
from blockhouse_operator.api.status import ClickHouseShardIngestStatus
from blockhouse_operator.decide.references import Reference, references_of_pods
from blockhouse_operator.decide.removal import first_to_leave
from blockhouse_operator.decide.restarts import heard
from blockhouse_operator.decide.seen import RebuildSeen, ShardSeen
from blockhouse_operator.decide.shard import ShardPlan, describe_shard, may_end
from blockhouse_operator.decide.volumes import claim_size
from blockhouse_operator.desired.shard import children, without_pods
from blockhouse_operator.reconcile.busy import plan_and_take
from blockhouse_operator.reconcile.children import (
    Applied,
    Children,
    apply_children,
    list_children,
    prune_children,
    raise_refused,
)
from blockhouse_operator.reconcile.mounted import with_mounted_files
from blockhouse_operator.reconcile.observe import ShardLook, list_pods, look_at_shard, replicas_of
from blockhouse_operator.reconcile.rebuild import (
    about_replica,
    concerns,
    rebuild_seen,
    with_replication,
    without_pod_of_rebuilt,
)
from blockhouse_operator.reconcile.replication import observe_replication
from blockhouse_operator.reconcile.report import report, with_times
from blockhouse_operator.reconcile.scope import Scope
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.steps import ShardSteps
from blockhouse_operator.reconcile.tables import TableKeeper, in_progress
from blockhouse_operator.reconcile.topics import TopicKeeper

log = structlog.get_logger(__name__)

KINDS = (CONFIG_MAP, SERVICE, VOLUME_CLAIM, DISRUPTION_BUDGET, NETWORK_POLICY, STATEFUL_SET)
SOON = 5.0
"""Seconds after which a shard is reconciled again that is not as it should be: aggregators send no events."""
WATCHED_CLOSELY = 2.0
"""The same while a replica restarts: all others wait for it."""


class ShardReconciler:
    """Reconciles every shard of every pipeline."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope
        self._topics = TopicKeeper(services)
        self._tables = TableKeeper(services)

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Returns after how many seconds it is to be reconciled next; None when it is gone."""
        live = await self._services.kubernetes.get(SHARD_INGEST, namespace, name)
        if live is None or live["metadata"].get("deletionTimestamp"):
            return None
        try:
            shard = parse_shard_ingest(live)
        except InvalidSpec as error:
            await refuse(self._services, live, error)
            return self._services.resync
        if await self._scope.other(namespace, [zone.name for zone in shard.spec.zones]):
            return self._services.resync
        return await self._reconcile(self._with_demands(shard), live)

    async def _reconcile(self, shard: ClickHouseShardIngest, live: Object) -> float:
        services, spec = self._services, shard.spec
        contents = Contents(services.objects, shard.namespace, services.folder)
        token = Reference("Secret", names.internal_secret(spec.pipeline), "token")
        await contents.read([token])
        missing = await contents.read(references_of_pods(spec))
        found = await list_children(
            services.kubernetes, KINDS, shard.namespace, labels.of_shard(spec.pipeline, spec.shard)
        )
        pods = await list_pods(services, shard)
        leaving = [name for name in replicas_of(found, shard.owners()) if name not in spec.replica_names()]
        manifests = with_mounted_files(shard, leaving, pods, children(shard, services.zones), found)
        if may_end(spec, shard.status):
            manifests = without_pods(manifests, spec.replica_names())
        manifests, too_large = with_claim_sizes(without_pod_of_rebuilt(shard, manifests, found), found)
        applied = await apply_children(services.kubernetes, manifests, found, shard.owners())
        look = await look_at_shard(services, shard, found, contents, missing, self._tables.last(shard), pods)
        await prune_children(services.kubernetes, manifests, found, shard.uid, keep=leaving)
        topics, trouble = await self._topics.keep(spec, contents, shard.status.topics)
        look = _add(look, applied, trouble, too_large)
        look = await self._with_replication(shard, contents, look, rebuild_seen(shard, found))
        steps = ShardSteps(services, shard, live, found, look, contents)
        plan, taken = await plan_and_take(services, shard, look.seen, steps.take)
        tables = shard.status.tables
        if not spec.suspend and not spec.stop:  # suspended aggregators own nothing: tables stay as they are
            secret = contents.admin_token(spec.pipeline)
            noted = shard.status.model_copy(update={"rollout": taken.rollout, "rebuild": taken.rebuild})
            tables = await self._tables.keep(replace(shard, status=noted), live, look.seen, contents, secret)
        status, conditions = describe_shard(spec, look.seen, plan, topics, tables)
        timed = with_times(services, shard.status.conditions, conditions, shard.generation)
        whole = status.model_copy(
            update={
                "conditions": timed,
                "observed_generation": shard.generation,
                "rollout": taken.rollout,
                "rebuild": taken.rebuild,
                "restart": shard.status.restart,
            }
        )
        await report(services, SHARD_INGEST, live, shard.status.conditions, whole, timed)
        if taken.trouble is not None:
            raise taken.trouble
        raise_refused(shard.name, applied)
        return self._next(plan, whole, applied)

    def _with_demands(self, shard: ClickHouseShardIngest) -> ClickHouseShardIngest:
        """The shard with the demands to restart that are heard now. What was asked before there were pods asks for
        nothing."""
        now = self._services.now() if shard.status.observed_generation else shard.created
        asked = shard.annotations.get(labels.RESTART, "")[:256]
        restart = heard(shard.status.restart, shard.spec.rollout.restart, asked, now=now)
        return replace(shard, status=shard.status.model_copy(update={"restart": restart}))

    async def _with_replication(
        self, shard: ClickHouseShardIngest, contents: Contents, look: ShardLook, rebuild: RebuildSeen
    ) -> ShardLook:
        """Observe how far each replica is, where one is to leave or may need a rebuild."""
        seen, tables = look.seen, self._tables.last(shard)
        rebuilds = concerns(rebuild, tables)
        if shard.spec.clickhouse.managed is None or not (seen.surplus or rebuilds):
            return look
        if seen.zookeeper_trouble:
            return replace(look, seen=replace(seen, rebuild=rebuild if rebuilds else None))
        about = about_replica(rebuild) or (first_to_leave(seen.surplus).name if seen.surplus else "")
        try:
            found = await observe_replication(self._services, shard, contents, about)
        except Retryable as error:
            return replace(look, seen=replace(seen, zookeeper_trouble=str(error)))
        known = with_replication(rebuild, tables, found) if rebuilds else None
        return replace(look, seen=replace(seen, replication=found, rebuild=known))

    def _next(self, plan: ShardPlan, status: ClickHouseShardIngestStatus, applied: Applied) -> float:
        if plan.steps or applied.ending or in_progress(status.tables):
            return 0.5
        if status.rollout is not None or status.rebuild is not None:
            return WATCHED_CLOSELY
        true = {c.type for c in status.conditions if c.status == "True"}
        idle = ConditionType.SUSPENDED.value in true and ConditionType.RECONCILING.value not in true
        return self._services.resync if plan.settled and (ConditionType.READY.value in true or idle) else SOON


async def refuse(services: Services, live: Object, error: InvalidSpec) -> None:
    """Report what is wrong with a ClickHouseShardIngest; its children stay as they are."""
    generation = live["metadata"].get("generation", 0)
    conditions = [
        condition(ConditionType.READY, False, Reason.INVALID_SPEC, str(error)),
        condition(ConditionType.STALLED, True, Reason.INVALID_SPEC, str(error)),
    ]
    before = parse_status(live)
    timed = with_times(services, before.conditions, conditions, generation)
    status = before.model_copy(update={"conditions": timed, "observed_generation": generation})
    await report(services, SHARD_INGEST, live, before.conditions, status, timed)


def parse_status(live: Object) -> ClickHouseShardIngestStatus:
    try:
        return ClickHouseShardIngestStatus.model_validate(live.get("status") or {})
    except ValueError:
        return ClickHouseShardIngestStatus()


def with_claim_sizes(manifests: Sequence[Object], live: Children) -> tuple[list[Object], list[str]]:
    """The manifests, in which each volume claim asks for a size that the API server accepts; and why it is another."""
    found: list[Object] = []
    too_large = []
    for manifest in manifests:
        known = live.get((manifest["kind"], manifest["metadata"]["name"]))
        if manifest["kind"] == VOLUME_CLAIM.name and known is not None:
            size, why = claim_size(manifest["spec"]["resources"]["requests"]["storage"], known)
            too_large += [why] if why else []
            spec = {**manifest["spec"], "resources": {"requests": {"storage": size}}}
            found.append({**manifest, "spec": spec})
        else:
            found.append(manifest)
    return found, too_large


def _add(look: ShardLook, applied: Applied, trouble: Mapping[str, str], too_large: Sequence[str]) -> ShardLook:
    seen: ShardSeen = replace(
        look.seen,
        too_large=tuple(too_large),
        taken=tuple(applied.taken),
        refused=tuple(applied.refused),
        kafka_trouble={**look.seen.kafka_trouble, **trouble},
    )
    return replace(look, seen=seen)
