"""Serve a pipeline's zones, or a namespace's mirrors, or leave them to the release that does (`decide.scope`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import structlog

from blockhouse.errors import Permanent
from blockhouse_operator.adapters.kinds import LEASE, Object
from blockhouse_operator.decide.scope import SECONDS, Entry, claim
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)

NAME = "blockhouse-pipelines"
ENTRIES = "ingest.blockhouse.dev/zones"
"""Annotation of the Lease: by zone, who serves it and since when, as JSON."""
LOOK_SECONDS = 20.0
MIRRORS = "KafkaMirror"
"""The entry of a namespace's mirrors, which are in no zone; no zone can have this name."""


class Scope:
    """What this process has found of the Leases of namespaces: asked again only after some seconds."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._found: dict[tuple[str, tuple[str, ...]], tuple[float, str]] = {}
        self._seen: dict[str, dict[str, tuple[Entry, float]]] = {}
        """By namespace and zone, the entry and since when it has been so, by our own clock."""
        self._locks: dict[str, asyncio.Lock] = {}
        """By namespace: shards that are reconciled at the same moment must not be refused each other's write."""

    async def other(self, namespace: str, zones: Iterable[str]) -> str:
        """Which other release serves the zones, in words; empty when this one does. Raises Retryable when another
        operator writes at the same moment."""
        mine = self._services.zones
        return await self._other(namespace, tuple(sorted(zone for zone in set(zones) if mine is None or zone in mine)))

    async def other_of_mirrors(self, namespace: str) -> str:
        """The same of the namespace's mirrors: of releases with different zones one runs them."""
        return await self._other(namespace, (MIRRORS,))

    async def _other(self, namespace: str, served: tuple[str, ...]) -> str:
        services = self._services
        if services.release is None or not served:
            return ""
        async with self._locks.setdefault(namespace, asyncio.Lock()):
            place, now = (namespace, served), services.clock()
            known = self._found.get(place)
            if known is not None and now - known[0] < LOOK_SECONDS:
                return known[1]
            why = await self._claim(namespace, served, services.release)
            if why and (known is None or known[1] != why):
                log.error("scope_taken", namespace=namespace, why=why)
            self._found[place] = (now, why)
            return why

    async def _claim(self, namespace: str, zones: tuple[str, ...], release: str) -> str:
        services, now = self._services, self._services.wall()
        try:
            live = await services.kubernetes.get(LEASE, namespace, NAME)
            entries = _entries(live)
            found = claim(zones, release, entries, self._ages(namespace, entries, release), now.timestamp())
            if found.entries is not None:
                await services.kubernetes.put(_lease(namespace, live, found.entries, release, now), live, why="scope")
                self._note(namespace, {zone: found.entries[zone] for zone in zones})
        except Permanent as error:  # the rights of an older chart: work as before there was such a Lease
            log.warning("scope_unknown", namespace=namespace, error=str(error))
            return ""
        if not found.foreign:
            return ""
        zone, holder = next(iter(sorted(found.foreign.items())))
        what = "every KafkaMirror" if zone == MIRRORS else f"zone {zone}"
        return (
            f"{what} of namespace {namespace} is served by the operators of {holder}: uninstall one of the two "
            f"releases, or give them different namespaces or zones; this one takes over {SECONDS:.0f} s after the "
            "other one has ended"
        )

    def _ages(self, namespace: str, entries: Mapping[str, Entry], release: str) -> dict[str, float]:
        """For how long each entry has been as it is. One of this release that an earlier process wrote is due."""
        known, now = self._seen.get(namespace, {}), self._services.clock()
        self._seen[namespace] = {
            zone: known[zone]
            if zone in known and known[zone][0] == entry
            else (entry, float("-inf") if entry.holder == release else now)
            for zone, entry in entries.items()
        }
        return {zone: now - since for zone, (_, since) in self._seen[namespace].items()}

    def _note(self, namespace: str, written: Mapping[str, Entry]) -> None:
        """What we have written ourselves."""
        now = self._services.clock()
        self._seen[namespace] |= {zone: (entry, now) for zone, entry in written.items()}


def _entries(live: Object | None) -> dict[str, Entry]:
    text = ((live or {}).get("metadata", {}).get("annotations") or {}).get(ENTRIES, "{}")
    try:
        return {zone: Entry(str(e["holder"]), float(e["renewed"])) for zone, e in json.loads(text).items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _lease(
    namespace: str, live: Object | None, entries: Mapping[str, Entry], release: str, now: datetime
) -> dict[str, object]:
    text = json.dumps({zone: {"holder": e.holder, "renewed": e.renewed} for zone, e in entries.items()}, sort_keys=True)
    metadata: dict[str, object] = {"name": NAME, "namespace": namespace, "annotations": {ENTRIES: text}}
    if live is not None:
        metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.name,
        "metadata": metadata,
        "spec": {
            "holderIdentity": release,
            "leaseDurationSeconds": round(SECONDS),
            "renewTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }
