"""The operator while it leads: watches feed the queue, a list now and then finds what no event reported."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Protocol

import kopf
from kubernetes.aio.client import ApiClient

from blockhouse_operator.adapters.figures import Figures
from blockhouse_operator.adapters.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    POD,
    SERVICE,
    SHARD_INGEST,
    STATEFUL_SET,
    VOLUME_CLAIM,
    Object,
)
from blockhouse_operator.adapters.store import Store
from blockhouse_operator.adapters.watch import Watch
from blockhouse_operator.api.labels import CHILD, PIPELINE
from blockhouse_operator.handlers.events import BY_KOPF, registry_of, settings_of
from blockhouse_operator.handlers.freshness import Freshness
from blockhouse_operator.handlers.inventory import Inventory
from blockhouse_operator.handlers.keys import Key, asks_by_annotation, of_child, of_resource
from blockhouse_operator.handlers.listing import Listing
from blockhouse_operator.reconcile.leftovers import Leftovers
from blockhouse_operator.reconcile.mirror import MirrorReconciler
from blockhouse_operator.reconcile.pipeline import PipelineReconciler
from blockhouse_operator.reconcile.reassignment import ReassignmentReconciler
from blockhouse_operator.reconcile.schedule import spread
from blockhouse_operator.reconcile.scope import Scope
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.shard import ShardReconciler
from blockhouse_operator.reconcile.workers import WorkQueue

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
        self._listing = Listing(services, self._freshness, self.inventory, self.queue.add)
        stores, clock, scopes = services.kubernetes.stores, services.clock, services.namespaces.scopes
        self._watches = [self._watch(stores.add(kind, scope, CHILD, clock)) for scope in scopes for kind in WATCHED]
        # Of ours, those of which there are thousands; one made by hand has no labels.
        self._ours = [self._watch(stores.add(SHARD_INGEST, scope, {}, clock)) for scope in scopes]
        # kopf ends the process when one namespace is refused. The other reconciles read these from the API server.
        named = services.namespaces.names
        self._ours += [self._watch(Store(kind, scope, {}, clock)) for scope in named for kind in BY_KOPF]

    async def run(self) -> None:
        """Until cancelled; raises when a part of it ends, above all LeadershipLost."""
        named = bool(self._services.namespaces.names)
        if named:
            await self._listing.once()  # those that are refused are known before twelve watches of each ask
        tasks = [
            asyncio.create_task(self.queue.run()),
            asyncio.create_task(self._listing.run()),
            *(asyncio.create_task(watch.run(self._observed)) for watch in self._ours),
            *(asyncio.create_task(watch.run(self._child_observed)) for watch in self._watches),
        ]
        if not named:
            tasks.append(asyncio.create_task(self._kopf()))
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
        if now - self._listing.ended_at > WATCH_SECONDS + self._services.resync:
            return "the resources have not been listed for too long"
        return ""

    def watch_ages(self) -> Mapping[str, float]:
        """By kind, the seconds since the API server was last heard on its watch: the longest of those of the namespaces
        that can be read."""
        now, unread = self._services.clock(), self.unread
        ages: dict[str, float] = {}
        for store in [watch.store for watch in (*self._watches, *self._ours)]:
            if store.namespace not in unread:
                ages[store.kind.name] = max(now - store.heard_at, ages.get(store.kind.name, 0.0))
        return ages

    @property
    def unread(self) -> frozenset[str]:
        """Namespaces that should be served and cannot be read."""
        return self._services.namespaces.unread

    async def _reconcile(self, key: Key) -> float | None:
        if key.namespace in self.unread:
            return self._services.resync
        again = await self._reconcilers[key.sort].reconcile(key.namespace, key.name)
        return again if again is None else spread(again, self._services.resync, self._services.clock(), self._chance)

    def _watch(self, store: Store) -> Watch:
        return Watch(self._api, store, partial(self._services.namespaces.readable, store.namespace))

    async def _kopf(self) -> None:
        """The watches of our other kinds, over the whole cluster."""
        await kopf.operator(
            registry=registry_of(self._observed, self._api.configuration),
            settings=settings_of(),
            standalone=True,
            clusterwide=True,
        )

    def _observed(self, sort: str, resource: Object) -> None:
        """Of a resource of ours. A change of its status alone is our own write."""
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
        store = self._services.kubernetes.stores.of(SHARD_INGEST, namespace)
        for shard in (store.list(namespace, {PIPELINE: pipeline}) if store is not None else None) or ():
            self._wake_shard(namespace, shard.name)

    def _child_observed(self, _: str, child: Object) -> None:
        key = of_child(child)
        if key is not None:
            self.queue.hint(key, after=TOGETHER)


def _without_shard(resource: Object) -> dict[str, str]:
    found = resource["metadata"].get("labels") or {}
    return {name: value for name, value in found.items() if not name.endswith("/shard")}
