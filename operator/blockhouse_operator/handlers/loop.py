"""The operator while it leads: watches feed the queue, a list now and then finds what no event reported."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Protocol

import kopf
import structlog
from kubernetes.aio.client import ApiClient

from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.adapters.figures import Figures
from blockhouse_operator.adapters.kinds import (
    BLOCK_AGGREGATOR,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    KAFKA_MIRROR,
    KAFKA_REASSIGNMENT,
    NETWORK_POLICY,
    POD,
    SERVICE,
    SHARD_INGEST,
    STATEFUL_SET,
    VOLUME_CLAIM,
    Kind,
    Object,
)
from blockhouse_operator.adapters.refusals import NotFound
from blockhouse_operator.adapters.watch import Watch
from blockhouse_operator.api.labels import CHILD, PIPELINE
from blockhouse_operator.handlers.events import registry_of, settings_of
from blockhouse_operator.handlers.freshness import Freshness
from blockhouse_operator.handlers.inventory import Inventory
from blockhouse_operator.handlers.keys import Key, asks_by_annotation, of_child, of_resource
from blockhouse_operator.reconcile.leftovers import Leftovers
from blockhouse_operator.reconcile.mirror import MirrorReconciler
from blockhouse_operator.reconcile.pipeline import PipelineReconciler
from blockhouse_operator.reconcile.reassignment import ReassignmentReconciler
from blockhouse_operator.reconcile.scope import Scope
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.shard import ShardReconciler
from blockhouse_operator.reconcile.workers import WorkQueue

log = structlog.get_logger(__name__)

WATCHED = (
    POD,
    STATEFUL_SET,
    DEPLOYMENT,
    SERVICE,
    CONFIG_MAP,
    VOLUME_CLAIM,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
)
TOGETHER = 0.3
"""Seconds that events of children are collected for: a new shard sends dozens at once."""
WATCH_SECONDS = 600.0
"""A watch not heard for so long is dead: the server ends each after a few minutes."""


class Reconciler(Protocol):
    """Reconciles one sort of keys."""

    async def reconcile(self, namespace: str, name: str) -> float | None: ...


class OperatorLoop:
    """Everything that only the leader does. Use once: `run`."""

    def __init__(
        self, services: Services, api: ApiClient, figures: Figures, *, concurrency: int, chance: Random
    ) -> None:
        self._services = services
        self._api = api
        self._leftovers = Leftovers(services)
        self.reassignments = ReassignmentReconciler(services)

        scope = Scope(services)
        self._reconcilers: dict[str, Reconciler] = {
            "pipeline": PipelineReconciler(services, scope, self._wake_shards),
            "shard": ShardReconciler(services, scope, self._wake_shard),
            "leftovers": self._leftovers,
            "reassignment": self.reassignments,
            "mirror": MirrorReconciler(services, scope),
        }
        self._freshness = Freshness()
        self._known: set[Key] = set()
        self._chance = chance
        self.queue: WorkQueue[Key] = WorkQueue(
            self._reconcile,
            concurrency=concurrency,
            clock=services.clock,
            chance=chance.random,
            first=lambda key: key.sort == "pipeline",
            ended=lambda key, outcome, seconds: figures.reconcile_seconds.labels(key.sort, outcome).observe(seconds),
        )
        self.inventory = Inventory()
        stores = services.kubernetes.stores
        self._watches = [Watch(api, stores.add(kind, services.namespace, CHILD, services.clock)) for kind in WATCHED]
        # Of ours, those of which there are thousands; one made by hand has no labels.
        self._shards = Watch(api, stores.add(SHARD_INGEST, services.namespace, {}, services.clock))
        self._listed_at = services.clock()

    async def run(self) -> None:
        """Until cancelled; raises when a part of it ends, above all LeadershipLost."""
        tasks = [
            asyncio.create_task(self.queue.run()),
            asyncio.create_task(self._kopf()),
            asyncio.create_task(self._resync()),
            asyncio.create_task(self._shards.run(self._observed)),
            *(asyncio.create_task(watch.run(self._child_observed)) for watch in self._watches),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def sick(self) -> str:
        """Why the process should be restarted; empty while it is well."""
        now = self._services.clock()
        if self._freshness.missed(now):
            return "changes of our resources were missed: their watch is dead"
        for age in self.watch_ages().values():
            if age > WATCH_SECONDS:
                return "a watch has not been heard of for too long"
        if now - self._listed_at > WATCH_SECONDS + self._services.resync:
            return "the resources have not been listed for too long"
        return ""

    def watch_ages(self) -> Mapping[str, float]:
        """By kind, the seconds since the API server was last heard on its watch."""
        now = self._services.clock()
        stores = [watch.store for watch in (*self._watches, self._shards)]
        return {store.kind.name: now - store.heard_at for store in stores}

    async def _reconcile(self, key: Key) -> float | None:
        again = await self._reconcilers[key.sort].reconcile(key.namespace, key.name)
        # Spread, so that many resources do not come back in the same second.
        return again if again is None else again * (1 + self._chance.random() / 5)

    async def _kopf(self) -> None:
        namespace = self._services.namespace
        await kopf.operator(
            registry=registry_of(self._observed, self._api.configuration),
            settings=settings_of(),
            standalone=True,
            clusterwide=namespace is None,
            namespaces=[namespace] if namespace else [],
        )

    def _observed(self, sort: str, resource: Object) -> None:
        """Of a resource of ours. A change of its status alone was made by ourselves."""
        meta, key = resource["metadata"], of_resource(resource)
        if key is None:
            return
        if sort == "DELETED":
            self._freshness.gone(meta["uid"])
            self._gone(key, resource)
        elif self._freshness.reported(meta["uid"], meta["generation"]) or meta.get("deletionTimestamp"):
            self._known |= {key} if key.sort == "pipeline" else set()
            self.queue.add(key)
        elif asks_by_annotation(resource):
            self.queue.hint(key, after=TOGETHER)
        self._wake_owner(key, resource)

    def _gone(self, key: Key, resource: Object) -> None:
        """A pipeline that was refused because of another may be accepted when that one is deleted."""
        self._known.discard(key)
        self.queue.add(key)
        if key.sort == "pipeline":
            for other in self._known:
                self.queue.add(other, after=TOGETHER)
            if self._leftovers.note(resource):
                self.queue.add(key._replace(sort="leftovers"))

    def _wake_owner(self, key: Key, resource: Object) -> None:
        owner = of_child({"metadata": {**resource["metadata"], "labels": _without_shard(resource)}})
        if key.sort == "shard" and owner is not None:
            self.queue.hint(owner, after=TOGETHER)

    def _wake_shard(self, namespace: str, name: str) -> None:
        self.queue.hint(Key("shard", namespace, name), after=0.0)

    def _wake_shards(self, namespace: str, pipeline: str) -> None:
        """All of a pipeline that the watch has reported; the others are reconciled once it does."""
        store = self._shards.store
        for live in store.list(namespace, {PIPELINE: pipeline}) or ():
            self._wake_shard(namespace, live["metadata"]["name"])

    def _child_observed(self, _: str, child: Object) -> None:
        key = of_child(child)
        if key is not None:
            self.queue.hint(key, after=TOGETHER)

    async def _resync(self) -> None:
        """List our resources now and then: what no event reported is reconciled all the same."""
        while True:
            try:
                await self._list()
            except (Retryable, Permanent) as error:
                log.warning("resync_failed", error=str(error))
            await asyncio.sleep(self._services.resync)

    async def _list(self) -> None:
        uids: set[str] = set()
        resources: list[Object] = []
        for kind in (BLOCK_AGGREGATOR, SHARD_INGEST, KAFKA_REASSIGNMENT, KAFKA_MIRROR):
            for resource in await self._listed(kind):
                meta, key = resource["metadata"], of_resource(resource)
                uids.add(meta["uid"])
                resources.append(resource)
                if key and self._freshness.found(meta["uid"], meta["generation"], self._services.clock()):
                    self.queue.add(key)
        self._freshness.keep_only(uids)
        self.inventory.replace(resources)
        self._listed_at = self._services.clock()

    async def _listed(self, kind: Kind) -> list[Object]:
        try:
            return await self._services.kubernetes.list(kind, self._services.namespace)
        except NotFound:
            if kind not in (KAFKA_REASSIGNMENT, KAFKA_MIRROR):
                raise
            return []  # its definition came with a later version than the others, and is not installed


def _without_shard(resource: Object) -> dict[str, str]:
    found = resource["metadata"].get("labels") or {}
    return {name: value for name, value in found.items() if not name.endswith("/shard")}
