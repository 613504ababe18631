"""How many shards of a pipeline are being changed, by their statuses: so another leader counts the same.

Most of a large pipeline waits during a rollout: those that wait are counted by what the watches reported, now and then
for all of them together, and one of them is woken when another shard is done. One that may begin counts by a list of
all shards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from blockhouse_operator.adapters.kinds import SHARD_INGEST, Object
from blockhouse_operator.api import labels
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.decide.rollout import BeginStep
from blockhouse_operator.decide.seen import ShardSeen
from blockhouse_operator.decide.shard import ShardPlan, plan_shard
from blockhouse_operator.reconcile.services import Services

Taken = TypeVar("Taken")

REFUSED_SECONDS = 5.0
"""A count that lets no shard begin is not repeated for so long; one that lets a shard begin is always fresh."""


async def plan_and_take(
    services: Services,
    shard: ClickHouseShardIngest,
    seen: ShardSeen,
    take: Callable[[ShardPlan], Awaitable[Taken]],
) -> tuple[ShardPlan, Taken]:
    """Plan the next steps of a shard and take them: where it would begin a restart, as one with counting others."""
    plan = plan_shard(shard.spec, seen)
    if not any(isinstance(step, BeginStep) for step in plan.steps):
        queue_up(services, shard, waits=False)
        return plan, await take(plan)
    # Noting a new step and counting those of other shards must be one: else two begin where one is allowed.
    async with services.rollout_lock(shard.namespace, shard.spec.pipeline):
        plan = plan_shard(shard.spec, replace(seen, busy_shards=await busy_shards(services, shard)))
        queue_up(services, shard, waits=not any(isinstance(step, BeginStep) for step in plan.steps))
        return plan, await take(plan)


def queue_up(services: Services, shard: ClickHouseShardIngest, *, waits: bool) -> None:
    """Note that the shard waits for others of its pipeline, or does so no longer."""
    waiting = services.waiting.setdefault(_place(shard), {})
    if waits:
        waiting.setdefault(shard.name)
    else:
        waiting.pop(shard.name, None)


def queues(services: Services, shard: ClickHouseShardIngest) -> bool:
    """Whether the shard waits for others of its pipeline."""
    return shard.name in services.waiting.get(_place(shard), {})


def done_with(services: Services, shard: ClickHouseShardIngest) -> tuple[str, ...]:
    """The shard is changed no longer: returns those that have waited longest, as many as may be changed at a time."""
    services.busy.pop(_place(shard), None)
    waiting = services.waiting.get(_place(shard), {})
    waiting.pop(shard.name, None)
    return tuple(waiting)[: shard.spec.rollout.max_parallel_shards]


def _place(shard: ClickHouseShardIngest) -> str:
    return f"{shard.namespace}/{shard.spec.pipeline}"


async def busy_shards(services: Services, shard: ClickHouseShardIngest) -> int:
    """Other shards with a replica that restarts or a table that is held.

    To be asked under the pipeline's `rollout_lock`, and what is begun then to be noted in the status under it too.
    """
    place = _place(shard)
    since, known = services.busy.get(place, (float("-inf"), frozenset()))
    others = len(known - {shard.name})
    if others >= shard.spec.rollout.max_parallel_shards and services.clock() - since < REFUSED_SECONDS:
        return others
    shards = await services.kubernetes.list(SHARD_INGEST, shard.namespace, labels.of_pipeline(shard.spec.pipeline))
    found = frozenset(other["metadata"]["name"] for other in shards if _busy(other))
    services.busy[place] = (services.clock(), found)
    return len(found - {shard.name})


def _busy(shard: Object) -> bool:
    status = shard.get("status") or {}
    restarting = (status.get("rollout") or {}).get("replica")
    return bool(restarting) or any(table.get("heldSince") for table in status.get("tables") or ())
