"""Carry out the steps of a shard's plan, each of which may be repeated or cut short anywhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from blockhouse.errors import Blocked, Retryable
from blockhouse_operator.adapters.kinds import SHARD_INGEST, STATEFUL_SET, VOLUME_CLAIM, Object
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.api.status import AGGREGATOR_RESTART, RESTART, RebuildStatus, RolloutStatus
from blockhouse_operator.decide.paths import replication_paths
from blockhouse_operator.decide.rebuild import BeginRebuild, EndRebuild, ReplaceVolume, RestoreReplica
from blockhouse_operator.decide.removal import DeleteReplica, Drain, Unregister
from blockhouse_operator.decide.rollout import BeginStep, EndStep, Restart, RestartAggregator
from blockhouse_operator.decide.shard import ShardPlan
from blockhouse_operator.decide.steps import OneReplicaStep
from blockhouse_operator.reconcile.children import Children
from blockhouse_operator.reconcile.observe import ShardLook, admin_base, ensemble_of, other_zones
from blockhouse_operator.reconcile.rebuild_steps import RebuildSteps
from blockhouse_operator.reconcile.report import as_json
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """The rollout and the rebuild that the status has to keep, and what kept a step from being taken."""

    rollout: RolloutStatus | None
    rebuild: RebuildStatus | None = None
    trouble: Retryable | None = None


class ShardSteps:
    """The steps of one reconcile of one shard."""

    def __init__(
        self,
        services: Services,
        shard: ClickHouseShardIngest,
        live: Object,
        children: Children,
        look: ShardLook,
        contents: Contents,
    ) -> None:
        self._services = services
        self._shard = shard
        self._live = live
        self._children = children
        self._look = look
        self._contents = contents
        self._rebuilds = RebuildSteps(services, shard, live, children, look.seen, contents)

    async def take(self, plan: ShardPlan) -> Taken:
        """Take every step in order. After one that failed none is taken: the next may rely on it."""
        if plan.steps:
            self._services.must_be_fresh()
        rollout, rebuild = self._shard.status.rollout, self._shard.status.rebuild
        for step in plan.steps:
            log.info("step", shard=self._shard.name, step=type(step).__name__, replica=step.replica, why=step.why)
            try:
                match step:
                    case BeginRebuild():
                        rebuild = await self._rebuilds.begin(step)
                    case EndRebuild():
                        await self._rebuilds.end(step)
                        rebuild = None
                    case _:  # open: every other step is one of `OneReplicaStep`
                        rollout = await self._take(step, rollout)
            except Retryable as error:
                return Taken(rollout, rebuild, error)
            except Blocked as error:
                return Taken(rollout, rebuild, Retryable(str(error), after=5.0))
        return Taken(rollout, rebuild)

    async def _take(self, step: OneReplicaStep, rollout: RolloutStatus | None) -> RolloutStatus | None:
        match step:
            case BeginStep():
                return await self._begin(step)
            case Restart():
                await self._restart(step)
            case RestartAggregator():
                await self._restart_aggregator(step)
            case EndStep():
                await self._release(step.replica)
                return None
            case Drain():
                await self._drain(step)
            case Unregister():
                await self._unregister(step)
            case DeleteReplica():
                await self._delete(step)
            case ReplaceVolume():
                await self._rebuilds.replace_volume(step)
            case RestoreReplica():
                await self._rebuilds.restore(step)
        return rollout

    async def _begin(self, step: BeginStep) -> RolloutStatus | None:
        """Note the step before anything is done, so that the next reconcile or operator knows of it."""
        shard, services = self._shard, self._services
        if other_zones(services, shard) and not services.dry_run:
            ensemble = ensemble_of(services, shard, self._contents)
            root = shard.spec.zookeeper.root
            holder = await asyncio.to_thread(ensemble.claim_restart, root, shard.spec.shard, step.replica)
            if holder != step.replica:
                return None
        what = AGGREGATOR_RESTART if step.aggregator_only else RESTART
        rollout = RolloutStatus(replica=step.replica, step=what, since=services.now())
        # Written at once, and not with the rest of the status: the lock on the pipeline's rollouts is held only now.
        noted = shard.status.model_copy(update={"rollout": rollout})
        await services.kubernetes.apply_status(SHARD_INGEST, self._live, as_json(noted))
        return rollout

    async def _restart(self, step: Restart) -> None:
        pod = self._look.pods.get(step.replica)
        if pod is None:
            return
        seen = next(replica.pod for replica in self._look.seen.replicas if replica.name == step.replica)
        if seen is not None and seen.ready:
            await self._services.kubernetes.evict(pod, why=step.why)
        else:
            await self._services.kubernetes.delete(pod, why=step.why, same_version=True)
        await self._emit("Restarting", f"pod of {step.replica} is replaced: {step.why}")

    async def _restart_aggregator(self, step: RestartAggregator) -> None:
        services, shard = self._services, self._shard
        if services.dry_run:
            return
        login = self._contents.admin_login(shard.spec.pipeline, shard.spec.admin_tls)
        base = admin_base(services, shard, self._look.seen, step.replica)
        await services.http.restart(base, login, step.demand)
        await self._emit("Restarting", f"aggregator of {step.replica} restarts: {step.why}")

    async def _release(self, replica: str) -> None:
        if other_zones(self._services, self._shard) and not self._services.dry_run:
            ensemble = ensemble_of(self._services, self._shard, self._contents)
            root = self._shard.spec.zookeeper.root
            await asyncio.to_thread(ensemble.release_restart, root, self._shard.spec.shard, replica)

    async def _drain(self, step: Drain) -> None:
        found = self._children.get((STATEFUL_SET.name, step.replica))
        if found is not None:
            await self._services.kubernetes.scale_to_zero(found, why=step.why)
            await self._emit("Draining", f"{step.replica} is removed: {step.why}")

    async def _unregister(self, step: Unregister) -> None:
        """Take the replica out of ZooKeeper, table by table, as far as the spec states where the tables are."""
        services, spec, seen = self._services, self._shard.spec, self._look.seen
        ensemble = ensemble_of(services, self._shard, self._contents)
        declared = replication_paths(spec, self._contents.declaration)
        known = seen.replication.registered(step.replica) if seen.replication is not None else ()
        unknown = [table for table, path in declared.items() if path is None] if not known else []
        paths = step.paths or sorted({*known, *filter(None, declared.values())})
        if step.paths:
            await self._rebuilds.check_missing(step)
        elif step.replica not in spec.replica_names():
            await self._rebuilds.mark_retained(step.replica, copied=seen.accepted_loss != step.replica)
        for path in paths:
            if not services.dry_run:
                await asyncio.to_thread(ensemble.unregister, path, step.replica)
        if unknown:
            await self._emit(
                "NotUnregistered",
                f"{step.replica} stays registered in ZooKeeper for {', '.join(unknown)}: the spec names no path; "
                f"remove replicas/{step.replica} below the table's path by hand",
                warning=True,
            )

    async def _delete(self, step: DeleteReplica) -> None:
        """Everything of the replica that we own, its StatefulSet and then its volume claim last; a retained volume
        claim has no owner."""
        await self._rebuilds.forget_acceptance(step.replica)
        ours = [
            found
            for found in self._children.values()
            if (found["metadata"].get("labels") or {}).get(labels.REPLICA) == step.replica
            and any(owner["uid"] in self._shard.owners() for owner in found["metadata"].get("ownerReferences", ()))
        ]
        last = (STATEFUL_SET.name, VOLUME_CLAIM.name)
        for found in sorted(ours, key=lambda item: last.index(item["kind"]) if item["kind"] in last else -1):
            await self._services.kubernetes.delete(found, why=step.why)
        await self._emit("Removed", f"{step.replica} is gone: {step.why}")

    async def _emit(self, reason: str, message: str, *, warning: bool = False) -> None:
        await self._services.kubernetes.emit(
            self._live, warning=warning, reason=reason, message=message, at=self._services.now()
        )
