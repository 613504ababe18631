"""One turn of a ClickHouseShardIngest: look, apply what is missing, take the next step, say how it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import structlog

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
from blockhouse_operator.decide.references import Reference, references
from blockhouse_operator.decide.seen import ShardSeen
from blockhouse_operator.decide.shard import ShardPlan, describe_shard, plan_shard
from blockhouse_operator.desired.shard import children
from blockhouse_operator.reconcile.busy import busy_shards
from blockhouse_operator.reconcile.children import Applied, apply_children, list_children, prune_children
from blockhouse_operator.reconcile.observe import ShardLook, look_at_shard
from blockhouse_operator.reconcile.report import report, with_times
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.steps import ShardSteps, Taken
from blockhouse_operator.reconcile.tables import TableKeeper, in_progress
from blockhouse_operator.reconcile.topics import TopicKeeper

log = structlog.get_logger(__name__)

KINDS = (CONFIG_MAP, SERVICE, VOLUME_CLAIM, DISRUPTION_BUDGET, NETWORK_POLICY, STATEFUL_SET)
SOON = 5.0
"""Seconds after which a shard is looked at again that is not as it should be: aggregators send no events."""
WATCHED_CLOSELY = 2.0
"""The same while a replica restarts: all others wait for it."""


class ShardTurns:
    """Turns of every shard of every pipeline."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._topics = TopicKeeper(services)
        self._tables = TableKeeper(services)

    async def turn(self, namespace: str, name: str) -> float | None:
        """Returns after how many seconds it wants the next turn; None when it is gone."""
        live = await self._services.kubernetes.get(SHARD_INGEST, namespace, name)
        if live is None or live["metadata"].get("deletionTimestamp"):
            return None
        try:
            shard = parse_shard_ingest(live)
        except InvalidSpec as error:
            await refuse(self._services, live, error)
            return self._services.resync
        return await self._reconcile(shard, live)

    async def _reconcile(self, shard: ClickHouseShardIngest, live: Object) -> float:
        services, spec = self._services, shard.spec
        contents = Contents(services.kubernetes, shard.namespace, services.folder)
        token = Reference("Secret", names.internal_secret(spec.pipeline), "token")
        await contents.read([token])
        missing = await contents.read(references(spec))
        found = await list_children(
            services.kubernetes, KINDS, shard.namespace, labels.of_shard(spec.pipeline, spec.shard)
        )
        manifests = children(shard, services.zones)
        applied = await apply_children(services.kubernetes, manifests, found, shard.uid)
        look = await look_at_shard(services, shard, found, contents, missing, self._tables.last(shard))
        going = [replica.name for replica in look.seen.surplus]
        await prune_children(services.kubernetes, manifests, found, shard.uid, keep=[*going, *map(names.claim, going)])
        topics, trouble = await self._topics.keep(spec, contents, shard.status.topics)
        look = _add(look, applied, trouble)
        steps = ShardSteps(services, shard, live, found, look, contents)
        plan, taken = await self._act(shard, look, steps)
        tables = shard.status.tables
        if not spec.suspend:  # suspended aggregators own nothing: tables stay as they are
            secret = contents.text(token.name, token.key) or ""
            noted = shard.status.model_copy(update={"rollout": taken.rollout})
            tables = await self._tables.keep(replace(shard, status=noted), live, look.seen, contents, secret)
        status, conditions = describe_shard(spec, look.seen, plan, topics, tables)
        timed = with_times(services, shard.status.conditions, conditions, shard.generation)
        whole = status.model_copy(
            update={"conditions": timed, "observed_generation": shard.generation, "rollout": taken.rollout}
        )
        await report(services, SHARD_INGEST, live, shard.status.conditions, whole, timed)
        if taken.trouble is not None:
            raise taken.trouble
        return self._next(plan, whole, applied)

    async def _act(self, shard: ClickHouseShardIngest, look: ShardLook, steps: ShardSteps) -> tuple[ShardPlan, Taken]:
        """Take the steps of the plan."""
        services, seen = self._services, look.seen
        if seen.turn is not None or not any(replica.outdated or replica.restart_due for replica in seen.replicas):
            plan = plan_shard(shard.spec, seen)
            return plan, await steps.take(plan)
        # Noting a new step and counting those of other shards must be one: else two begin where one is allowed.
        async with services.rollout_lock(shard.namespace, shard.spec.pipeline):
            seen = replace(seen, busy_shards=await busy_shards(services, shard))
            plan = plan_shard(shard.spec, seen)
            return plan, await steps.take(plan)

    def _next(self, plan: ShardPlan, status: ClickHouseShardIngestStatus, applied: Applied) -> float:
        if plan.steps or applied.ending or in_progress(status.tables):
            return 0.5
        if status.rollout is not None:
            return WATCHED_CLOSELY
        ready = any(c.type == ConditionType.READY.value and c.status == "True" for c in status.conditions)
        return self._services.resync if plan.settled and ready and not applied.refused else SOON


async def refuse(services: Services, live: Object, error: InvalidSpec) -> None:
    """Say what is wrong with a ClickHouseShardIngest; its children stay as they are."""
    generation = live["metadata"].get("generation", 0)
    said = [
        condition(ConditionType.READY, False, Reason.INVALID_SPEC, str(error)),
        condition(ConditionType.STALLED, True, Reason.INVALID_SPEC, str(error)),
    ]
    before = parse_status(live)
    timed = with_times(services, before.conditions, said, generation)
    status = before.model_copy(update={"conditions": timed, "observed_generation": generation})
    await report(services, SHARD_INGEST, live, before.conditions, status, timed)


def parse_status(live: Object) -> ClickHouseShardIngestStatus:
    try:
        return ClickHouseShardIngestStatus.model_validate(live.get("status") or {})
    except ValueError:
        return ClickHouseShardIngestStatus()


def _add(look: ShardLook, applied: Applied, trouble: Mapping[str, str]) -> ShardLook:
    seen: ShardSeen = replace(
        look.seen,
        taken=tuple(applied.taken),
        refused=tuple(applied.refused),
        kafka_trouble={**look.seen.kafka_trouble, **trouble},
    )
    return replace(look, seen=seen)
