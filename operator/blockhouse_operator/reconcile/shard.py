"""One reconcile of a ClickHouseShardIngest: look, apply what is missing, take the next step, report how it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.kinds import SHARD_INGEST, Object
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import names
from blockhouse_operator.api.conditions import ConditionType, Reason, condition
from blockhouse_operator.api.resource import ClickHouseShardIngest, InvalidSpec, parse_shard_ingest, shard_status
from blockhouse_operator.api.status import ClickHouseShardIngestStatus
from blockhouse_operator.decide.deferred import DEFERRED
from blockhouse_operator.decide.references import Reference
from blockhouse_operator.decide.removal import first_to_leave
from blockhouse_operator.decide.seen import ShardSeen
from blockhouse_operator.decide.shard import PAUSED_PLAN, ShardPlan, describe_shard
from blockhouse_operator.reconcile.backoff import Backoff
from blockhouse_operator.reconcile.busy import done_with, plan_and_take, queue_up, queues
from blockhouse_operator.reconcile.children import Applied, raise_refused
from blockhouse_operator.reconcile.observe import ShardLook, observe_shard
from blockhouse_operator.reconcile.rebuild import about_replica, concerns, with_replication
from blockhouse_operator.reconcile.replication import observe_replication
from blockhouse_operator.reconcile.report import report, with_times
from blockhouse_operator.reconcile.scope import Scope
from blockhouse_operator.reconcile.services import Services, proven
from blockhouse_operator.reconcile.snapshot import ShardSnapshot, ShardSnapshots
from blockhouse_operator.reconcile.steps import ShardSteps
from blockhouse_operator.reconcile.tables import TableKeeper, in_progress
from blockhouse_operator.reconcile.topics import TopicKeeper
from blockhouse_operator.reconcile.waits import Waits

log = structlog.get_logger(__name__)

AT_ONCE = 0.5
"""Seconds after which a shard is reconciled again that is in the middle of something."""
SOON = 5.0
"""The same of one that is not as it should be, at first: aggregators send no events."""
HELD = 15.0
"""At most so long where a step waits for the shard's own replicas: it makes a rollout longer."""
BY_A_PERSON = DEFERRED | {Reason.ABORTED}
"""What holds a step back because people wish so."""
WATCHED_CLOSELY = 2.0
"""The same while a replica restarts: all others wait for it."""


class ShardReconciler:
    """Reconciles every shard of every pipeline."""

    def __init__(self, services: Services, scope: Scope, wake: Callable[[str, str], None]) -> None:
        """`wake` lets a shard be reconciled soon, by namespace and name."""
        self._services = services
        self._scope = scope
        self._wake = wake
        self._backoff = Backoff()
        self._waits = Waits()
        self._topics = TopicKeeper(services)
        self._tables = TableKeeper()
        self._snapshots = ShardSnapshots()

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Returns after how many seconds it is to be reconciled next; None when it is gone."""
        return await proven(self._services, lambda services: self._reconcile_by(services, namespace, name))

    async def _reconcile_by(self, services: Services, namespace: str, name: str) -> float | None:
        snapshot = self._snapshots.known(services, namespace, name)
        live = snapshot.live if snapshot else await services.kubernetes.get(SHARD_INGEST, namespace, name)
        if live is None or live["metadata"].get("deletionTimestamp"):
            self._snapshots.forget(namespace, name)
            self._backoff.forget((namespace, name))
            self._waits.forget((namespace, name))
            return None
        try:
            shard = snapshot.shard if snapshot else parse_shard_ingest(live)
        except InvalidSpec as error:
            await refuse(services, live, error)
            return services.resync
        if await self._scope.other(namespace, [zone.name for zone in shard.spec.zones]):
            return services.resync
        contents = Contents(services.objects, namespace, services.folder)
        await contents.read([Reference("Secret", names.internal_secret(shard.spec.pipeline), "token")])
        if await services.pauses.of(services.kubernetes, namespace, shard.spec.pipeline):
            return await self._observe(services, shard, live, contents)
        services, permit = services.permitted(namespace, shard.spec.pipeline)
        snapshot = snapshot or await self._snapshots.look(services, shard, live)
        missing = await contents.read(snapshot.references)
        if not _all_made(shard):
            await permit()
        return await self._reconcile(services, snapshot, contents, missing)

    async def _observe(
        self, services: Services, shard: ClickHouseShardIngest, live: Object, contents: Contents
    ) -> float:
        """What is reported of a shard whose pipeline is paused. What it was in the middle of stays as it is."""
        live = await services.kubernetes.get(SHARD_INGEST, shard.namespace, shard.name) or live
        snapshot = await self._snapshots.observe(services, shard, live)
        missing = await contents.read(snapshot.references)
        last, before = self._tables.last(shard), shard.status
        seen = await observe_shard(services, shard, snapshot, contents, missing, last)
        queue_up(services, shard, waits=False)
        status, conditions = describe_shard(
            shard.spec, replace(seen, paused=True), PAUSED_PLAN, before.topics, before.tables
        )
        kept = {"rollout": before.rollout, "rebuild": before.rebuild, "restart": snapshot.restart}
        timed = with_times(services, before.conditions, conditions, shard.generation)
        whole = status.model_copy(update={**kept, "conditions": timed, "observed_generation": shard.generation})
        await report(services, SHARD_INGEST, live, before.conditions, whole, timed)
        return services.resync if whole == before else min(SOON, services.resync)

    async def _reconcile(
        self, services: Services, snapshot: ShardSnapshot, contents: Contents, missing: Sequence[str]
    ) -> float:
        shard, spec, applied = snapshot.shard, snapshot.shard.spec, snapshot.applied
        seen = await observe_shard(services, shard, snapshot, contents, missing, self._tables.last(shard))
        topics, trouble = await self._topics.keep(spec, contents, shard.status.topics)
        seen = _add(seen, snapshot, trouble)
        seen = await self._with_replication(services, snapshot, contents, seen)
        steps = ShardSteps(services, shard, snapshot.live, snapshot.found, ShardLook(seen, snapshot.pods), contents)
        plan, taken = await plan_and_take(services, shard, seen, steps.take)
        self._waits.note((shard.namespace, shard.name), plan.deferred)
        tables = shard.status.tables
        if not spec.suspend and not spec.stop:  # suspended aggregators own nothing: tables stay as they are
            noted = shard.status.model_copy(update={"rollout": taken.rollout, "rebuild": taken.rebuild})
            tables = await self._tables.keep(services, replace(shard, status=noted), snapshot.live, seen, contents)
        status, conditions = describe_shard(spec, seen, plan, topics, tables)
        timed = with_times(services, shard.status.conditions, conditions, shard.generation)
        whole = status.model_copy(
            update={
                "conditions": timed,
                "observed_generation": shard.generation,
                "rollout": taken.rollout,
                "rebuild": taken.rebuild,
                "restart": snapshot.restart,
            }
        )
        if whole != shard.status:
            await report(services, SHARD_INGEST, snapshot.live, shard.status.conditions, whole, timed)
        if taken.trouble is not None:
            raise taken.trouble
        raise_refused(shard.name, applied)
        if _being_changed(shard.status) and not _being_changed(whole):
            for name in done_with(services, shard):
                self._wake(shard.namespace, name)
        return self._next(shard, plan, whole, applied)

    async def _with_replication(
        self, services: Services, snapshot: ShardSnapshot, contents: Contents, seen: ShardSeen
    ) -> ShardSeen:
        """Observe how far each replica is, where one is to leave or may need a rebuild."""
        shard, rebuild, tables = snapshot.shard, snapshot.rebuild, self._tables.last(snapshot.shard)
        rebuilds = concerns(rebuild, tables)
        if shard.spec.clickhouse.managed is None or not (seen.surplus or rebuilds):
            return seen
        if seen.zookeeper_trouble:
            return replace(seen, rebuild=rebuild if rebuilds else None)
        about = about_replica(rebuild) or (first_to_leave(seen.surplus).name if seen.surplus else "")
        try:
            found = await observe_replication(services, shard, contents, about)
        except Retryable as error:
            return replace(seen, zookeeper_trouble=str(error))
        known = with_replication(rebuild, tables, found) if rebuilds else None
        return replace(seen, replication=found, rebuild=known)

    def _next(
        self, shard: ClickHouseShardIngest, plan: ShardPlan, status: ClickHouseShardIngestStatus, applied: Applied
    ) -> float:
        place, resync = (shard.namespace, shard.name), self._services.resync
        true = {c.type for c in status.conditions if c.status == "True"}
        idle = ConditionType.SUSPENDED.value in true and ConditionType.RECONCILING.value not in true
        if (
            plan.settled
            and (ConditionType.READY.value in true or idle)
            and not applied.ending
            and not in_progress(status.tables)
        ):
            self._backoff.forget(place)
            return resync
        moves = bool(plan.steps or applied.ending)
        if moves or _being_changed(status):
            return AT_ONCE if moves or in_progress(status.tables) else WATCHED_CLOSELY
        first = AT_ONCE if in_progress(status.tables) else SOON
        deferred = any(step.reason not in BY_A_PERSON for step in plan.deferred) and not queues(self._services, shard)
        longest = min(HELD, resync) if deferred else resync
        return self._backoff.after(place, first, longest, changed=status != shard.status or bool(applied.written))


def _all_made(shard: ClickHouseShardIngest) -> bool:
    """Whether every topic and table was as specified when it was last reported: none is created or changed then."""
    well, spec, status = Reason.AS_SPECIFIED.value, shard.spec, shard.status
    topics = {topic.cluster for topic in status.topics if topic.state == well}
    tables = {table.name for table in status.tables if table.state == well}
    desired = {cluster.name for cluster in spec.kafka.clusters if not cluster.retired}
    return desired <= topics and {table.name for table in spec.tables} <= tables


def _being_changed(status: ClickHouseShardIngestStatus) -> bool:
    """Whether the shard is one of those that are being changed, for which others wait."""
    return status.rollout is not None or status.rebuild is not None or any(table.held_since for table in status.tables)


async def refuse(services: Services, live: Object, error: InvalidSpec) -> None:
    """Report what is wrong with a ClickHouseShardIngest; its children stay as they are."""
    generation = live["metadata"].get("generation", 0)
    conditions = [
        condition(ConditionType.READY, False, Reason.INVALID_SPEC, str(error)),
        condition(ConditionType.STALLED, True, Reason.INVALID_SPEC, str(error)),
    ]
    before = shard_status(live)
    timed = with_times(services, before.conditions, conditions, generation)
    status = before.model_copy(update={"conditions": timed, "observed_generation": generation})
    await report(services, SHARD_INGEST, live, before.conditions, status, timed)


def _add(seen: ShardSeen, snapshot: ShardSnapshot, trouble: Mapping[str, str]) -> ShardSeen:
    return replace(
        seen,
        too_large=snapshot.too_large,
        taken=tuple(snapshot.applied.taken),
        refused=tuple(snapshot.applied.refused),
        kafka_trouble={**seen.kafka_trouble, **trouble},
    )
