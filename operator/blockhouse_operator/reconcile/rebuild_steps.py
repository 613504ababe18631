"""Carry out the steps of a rebuild, each of which may be repeated or cut short anywhere."""

from __future__ import annotations

from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.adapters.kinds import SHARD_INGEST, VOLUME_CLAIM, Object
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.api.status import RebuildStatus
from blockhouse_operator.decide.paths import replication_paths
from blockhouse_operator.decide.rebuild import BeginRebuild, EndRebuild, ReplaceVolume, RestoreReplica
from blockhouse_operator.decide.removal import Unregister
from blockhouse_operator.decide.seen import ShardSeen
from blockhouse_operator.reconcile.children import Children
from blockhouse_operator.reconcile.observe import admin_base
from blockhouse_operator.reconcile.rebuild import COPIED, NOT_COPIED
from blockhouse_operator.reconcile.replication import login_of, server_of
from blockhouse_operator.reconcile.report import as_json
from blockhouse_operator.reconcile.services import Services


class RebuildSteps:
    """Those of one reconcile of one shard, which is `live` in Kubernetes."""

    def __init__(
        self,
        services: Services,
        shard: ClickHouseShardIngest,
        live: Object,
        children: Children,
        seen: ShardSeen,
        contents: Contents,
    ) -> None:
        self._services = services
        self._shard = shard
        self._live = live
        self._children = children
        self._seen = seen
        self._contents = contents

    async def begin(self, step: BeginRebuild) -> RebuildStatus:
        """Note it before anything is done, so that the next operator knows of it."""
        rebuild = RebuildStatus(replica=step.replica, claim=step.claim, since=self._services.now())
        noted = self._shard.status.model_copy(update={"rebuild": rebuild})
        await self._services.kubernetes.apply_status(SHARD_INGEST, self._live, as_json(noted))
        await self._emit(
            "RebuildingReplica", f"{step.replica} is rebuilt from other replicas: {step.why}", warning=True
        )
        return rebuild

    async def end(self, step: EndRebuild) -> None:
        if self._shard.annotations.get(labels.REBUILD_REPLICA) == step.replica:
            await self._services.kubernetes.annotate(self._live, {labels.REBUILD_REPLICA: None}, why="done")
        await self.forget_acceptance(step.replica)
        await self._emit("ReplicaRebuilt", f"{step.replica}: {step.why}")

    async def forget_acceptance(self, replica: str) -> None:
        """A loss was accepted once: a volume that returns later may have rows that no one has accepted to lose."""
        if self._shard.annotations.get(labels.ACCEPT_DATA_LOSS) == replica:
            await self._services.kubernetes.annotate(self._live, {labels.ACCEPT_DATA_LOSS: None}, why="used")

    async def replace_volume(self, step: ReplaceVolume) -> None:
        claim = self._children.get((VOLUME_CLAIM.name, names.claim(step.replica)))
        if claim is not None and claim["metadata"]["uid"] == step.claim:
            await self._services.kubernetes.delete(claim, why=step.why)
            await self._emit("ReplacingVolume", f"volume claim of {step.replica} is replaced by an empty one")

    async def restore(self, step: RestoreReplica) -> None:
        """Raises Retryable while its server does not do it, with the reason."""
        services, shard = self._services, self._shard
        login = await login_of(shard, self._contents)
        base = server_of(services, shard, step.replica)
        try:
            for table in await services.clickhouse.replicated_tables(base, login):
                if table.readonly and not services.dry_run:
                    await services.clickhouse.restore(base, login, table.name)
        except Permanent as error:
            raise Retryable(f"{step.replica} cannot register its tables again: {error}", after=30.0) from error
        claim = self._children.get((VOLUME_CLAIM.name, names.claim(step.replica)))
        if claim is not None:
            await services.kubernetes.annotate(claim, {labels.UNREGISTERED: None}, why="registered again")
        await self._emit("ReplicaRestored", f"{step.replica} has registered the tables of its volume again")

    async def mark_retained(self, replica: str, *, copied: bool) -> None:
        """Note on a volume claim that outlives its replica that ZooKeeper does not know it any more."""
        claim = self._children.get((VOLUME_CLAIM.name, names.claim(replica)))
        if claim is None or claim["metadata"].get("ownerReferences"):
            return
        note = COPIED if copied else NOT_COPIED
        before = (claim["metadata"].get("annotations") or {}).get(labels.UNREGISTERED)
        if before not in (note, NOT_COPIED):  # what was not copied once is not by a repetition without acceptance
            await self._services.kubernetes.annotate(claim, {labels.UNREGISTERED: note}, why="unregistered")

    async def check_missing(self, step: Unregister) -> None:
        """Raise Retryable unless the server of the replica still does not have the tables: a registration must never
        be taken from a table that was created meanwhile."""
        services, shard = self._services, self._shard
        login = self._contents.admin_login(shard.spec.pipeline, shard.spec.admin_tls)
        base = admin_base(services, shard, self._seen, step.replica)
        by_path = {path: name for name, path in replication_paths(shard.spec, self._contents.declaration).items()}
        declared = {table.name: self._contents.declaration(table) for table in shard.spec.tables}
        for path in step.paths:
            name = by_path.get(path, "")
            gap = await services.http.gap(base, login, name, declared.get(name) or "")
            if gap.exists:
                raise Retryable(f"table {name} is at {step.replica} meanwhile; its registration stays", after=1.0)

    async def _emit(self, reason: str, message: str, *, warning: bool = False) -> None:
        await self._services.kubernetes.emit(
            self._live, warning=warning, reason=reason, message=message, at=self._services.now()
        )
