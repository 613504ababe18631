"""Lists of our resources now and then: what no event reported is reconciled all the same.

They are the judge of which namespaces can be read. What is in one that cannot is kept as it was found last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.adapters.kinds import (
    BLOCK_AGGREGATOR,
    KAFKA_MIRROR,
    KAFKA_REASSIGNMENT,
    SHARD_INGEST,
    Kind,
    Object,
)
from blockhouse_operator.adapters.refusals import NotFound
from blockhouse_operator.handlers.freshness import Freshness
from blockhouse_operator.handlers.inventory import Inventory
from blockhouse_operator.handlers.keys import Key, of_resource
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)

KINDS = (BLOCK_AGGREGATOR, SHARD_INGEST, KAFKA_REASSIGNMENT, KAFKA_MIRROR)


class Listing:
    """`add` is called with the key of a resource whose spec no event has reported."""

    def __init__(
        self, services: Services, freshness: Freshness, inventory: Inventory, add: Callable[[Key], None]
    ) -> None:
        self._services = services
        self._freshness = freshness
        self._inventory = inventory
        self._add = add
        self._uids: dict[str | None, set[str]] = {}
        """Of the resources of each namespace, as they were listed last."""
        self.ended_at = services.clock()
        """When all that could be read was listed last."""

    async def run(self) -> None:
        """Indefinitely."""
        while True:
            await self.once()
            await asyncio.sleep(self._services.resync)

    async def once(self) -> None:
        """List once. What fails is logged: it is done again."""
        try:
            await self._list()
        except (Retryable, Permanent) as error:
            log.warning("resync_failed", error=str(error))

    async def _list(self) -> None:
        namespaces, clock = self._services.namespaces, self._services.clock
        for scope in namespaces.scopes:
            if namespaces.rests(scope, clock()):
                continue
            try:
                found = [resource for kind in KINDS for resource in await self._listed(kind, scope)]
            except Permanent as error:
                name = namespaces.refusing(scope, error)
                namespaces.refused(name, str(error), at=clock(), first=self._services.resync)
                continue
            namespaces.read(scope)
            self._take(scope, found)
        self._freshness.keep_only(set().union(*self._uids.values()))
        self.ended_at = clock()

    def _take(self, scope: str | None, found: list[Object]) -> None:
        for resource in found:
            meta, key = resource["metadata"], of_resource(resource)
            if key and self._freshness.found(meta["uid"], meta["generation"], self._services.clock()):
                self._add(key)
        self._uids[scope] = {resource["metadata"]["uid"] for resource in found}
        self._inventory.replace(found, scope)

    async def _listed(self, kind: Kind, scope: str | None) -> list[Object]:
        try:
            return await self._services.kubernetes.list(kind, scope, part=_without_spec)
        except NotFound:
            if kind not in (KAFKA_REASSIGNMENT, KAFKA_MIRROR):
                raise
            return []  # its definition came with a later version than the others, and is not installed


def _without_spec(found: Object) -> Object:
    """What is needed of thousands."""
    meta = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    return {"kind": found["kind"], "metadata": meta, "status": found.get("status") or {}}
