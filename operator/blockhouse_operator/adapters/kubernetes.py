"""The Kubernetes API as the operator uses it: paginated lists, server-side apply, evictions, status, Events.

The only module that sends requests to an API server, apart from the watches and the leader's lease. Every write passes
the fence. It must never read or write a whole collection unpaginated, never apply what is already as desired, and never
change what is there by what the watches reported alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from copy import copy
from typing import Any, Literal

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient

from blockhouse.errors import Retryable
from blockhouse.http_errors import no_answer
from blockhouse_operator.adapters.drift import drifted
from blockhouse_operator.adapters.events import Events
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.adapters.figures import NO_ANSWER, Figures
from blockhouse_operator.adapters.kinds import EVENT, POD, Address, Kind, Object, address_of, kind_of
from blockhouse_operator.adapters.packed import PackedObjects, Packer
from blockhouse_operator.adapters.refusals import NotFound, Unproven, refusal
from blockhouse_operator.adapters.store import Place, Stores
from blockhouse_operator.api.labels import FIELD_MANAGER

log = structlog.get_logger(__name__)

PAGE = 250
REQUEST_SECONDS = 20.0
APPLY = "application/apply-patch+yaml"

Written = Literal["created", "changed", "unchanged"]
Propagation = Literal["Background", "Foreground", "Orphan"]


class Kubernetes:
    """One API server. With `dry_run` writes are logged and not sent. `stores` are those that watches fill.

    As constructed it reads from the API server; see `by_watches`.
    """

    def __init__(
        self, api: ApiClient, fence: Fence, figures: Figures, *, dry_run: bool = False, stores: Stores | None = None
    ) -> None:
        self._api = api
        self._fence = fence
        self._figures = figures
        self._dry_run = dry_run
        self._events = Events(self, fence.now)
        self.stores = stores or Stores()
        self.fresh = True
        """Whether it reads from the API server alone."""
        self._permit: Callable[[], Awaitable[None]] | None = None

    def by_watches(self) -> Kubernetes:
        """The same, which reads what the watches reported where that is known, and raises Unproven instead of a change
        of anything that is there; it creates what is missing, and writes a status that no one wrote meanwhile."""
        other = copy(self)
        other.fresh = False
        return other

    def permitted(self, permit: Callable[[], Awaitable[None]]) -> Kubernetes:
        """The same, which awaits `permit` before each write but a status's or an Event's, and raises what it does."""
        other = copy(self)
        other._permit = permit
        return other

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object, None when there is none. Raises Retryable or Permanent as the API server answers."""
        store, place = self.stores.of(kind, namespace), (namespace, name)
        if store is not None and not self.fresh and (known := store.get(place)) is not None:
            return known
        asked = store.asked() if store is not None else 0
        try:
            found: Object = await self._request("GET", kind.path(namespace, name))
        except NotFound:
            if store is not None:
                store.doubt(place)
            return None
        if store is not None:
            store.answered(found, asked)
        return found

    async def list(
        self,
        kind: Kind,
        namespace: str | None,
        labels: Mapping[str, str] | None = None,
        part: Callable[[Object], Object] = lambda found: found,
    ) -> list[Object]:
        """Every object of the kind with these labels; all namespaces without `namespace`. Of each its `part` is kept:
        thousands of whole ones take hundreds of megabytes."""
        store = self.stores.of(kind, namespace)
        if store is not None and not self.fresh and (known := store.list(namespace, labels or {})) is not None:
            return [part(each.unpacked()) for each in known]
        return [part(each) async for each in self._listed(kind, namespace, labels or {})]

    async def packed(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> PackedObjects:
        """As `list`, of thousands."""
        store, packer = self.stores.of(kind, namespace), Packer(kind)
        if store is not None and not self.fresh and (known := store.list(namespace, labels)) is not None:
            return PackedObjects(kind, known)
        return PackedObjects(kind, [packer.pack(each) async for each in self._listed(kind, namespace, labels)])

    async def _listed(self, kind: Kind, namespace: str | None, labels: Mapping[str, str]) -> AsyncIterator[Object]:
        """By requests, page by page."""
        store = self.stores.of(kind, namespace)
        query, asked = {"limit": str(PAGE)}, store.asked() if store is not None else 0
        if labels:
            query["labelSelector"] = ",".join(f"{key}={value}" for key, value in labels.items())
        there: set[Place] = set()
        while True:
            page = await self._request("GET", kind.path(namespace), query)
            for item in page["items"]:
                # Items of a list carry neither; a caller that gets one alone needs them.
                whole = {"apiVersion": kind.api_version, "kind": kind.name, **item}
                if store is not None:
                    there.add(store.answered(whole, asked))
                yield whole
            more = page["metadata"].get("continue")
            if not more:
                break
            query["continue"] = more
        if store is not None:
            store.read(namespace, labels, there)

    async def proxied(
        self, namespace: str, pod: str, port: int, path: str, headers: Mapping[str, str], *, secure: bool = False
    ) -> Any:
        """What a pod answers to GET, as JSON, by way of the API server; `Authorization` does not reach the pod."""
        name = f"https:{pod}:{port}" if secure else f"{pod}:{port}"
        return await self._request("GET", POD.path(namespace, name, f"proxy{path}"), headers=headers)

    async def apply(self, manifest: Object, live: Object | None, *, alone: bool = False) -> Written:
        """Make what we own of the object as in the manifest; no request where it is so already.

        `alone`: no other object that the watches report decides about it. Then it is changed by what they reported of
        it, if it is still as it was: raises Conflict where it has changed since.
        """
        kind, meta = kind_of(manifest), manifest["metadata"]
        differences = drifted(manifest, live, FIELD_MANAGER) if live is not None else ()
        if live is not None and not differences:
            return "unchanged"
        body = manifest
        if live is not None and alone and not self.fresh:
            body = {**manifest, "metadata": {**meta, "resourceVersion": live["metadata"]["resourceVersion"]}}
        await self._write(
            "PATCH",
            Address(kind, meta.get("namespace", ""), meta["name"]),
            {"fieldManager": FIELD_MANAGER, "force": "true"},
            body,
            content_type=APPLY,
            why="missing" if live is None else f"differs: {', '.join(differences[:5])}",
            changes=live is not None and not alone,
        )
        return "created" if live is None else "changed"

    async def replace_spec(self, live: Object, spec: Mapping[str, Any], *, why: str) -> None:
        """Give an object exactly this spec, no matter who owns its fields, if it is still as it was observed: so it may
        be decided by what the watches reported of it."""
        meta = live["metadata"]
        body = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            {"op": "replace", "path": "/spec", "value": spec},
        ]
        await self._write(
            "PATCH",
            address_of(live),
            {"fieldManager": FIELD_MANAGER},
            body,
            content_type="application/json-patch+json",
            why=why,
            changes=False,
        )

    async def put(self, manifest: Object, live: Object | None, *, why: str) -> None:
        """Create the object, or replace it as it was observed. Raises Conflict when another one was faster."""
        at = address_of(manifest)
        method, at = ("PUT", at) if live is not None else ("POST", at._replace(name=""))
        await self._write(method, at, {}, manifest, why=why)

    async def annotate(self, live: Object, annotations: Mapping[str, str | None], *, why: str) -> None:
        """Set annotations of an object, or remove those that are None."""
        body, query = {"metadata": {"annotations": dict(annotations)}}, {"fieldManager": f"{FIELD_MANAGER}-notes"}
        content_type = "application/merge-patch+json"
        await self._write("PATCH", address_of(live), query, body, content_type=content_type, why=why)

    async def scale_to_zero(self, stateful_set: Object, *, why: str) -> None:
        """Let a StatefulSet have no pod, if it is still as it was seen."""
        meta = stateful_set["metadata"]
        body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "spec": {"replicas": 0}}
        await self._write(
            "PATCH",
            address_of(stateful_set),
            {"fieldManager": FIELD_MANAGER},
            body,
            content_type="application/merge-patch+json",
            why=why,
        )

    async def apply_status(self, kind: Kind, live: Object, status: Mapping[str, Any]) -> bool:
        """Write the whole status; False without a request where it is so already. Raises Conflict where the object is
        one that the watches reported and it has changed since."""
        if live.get("status", {}) == status:
            return False
        meta = live["metadata"]
        same = ("name", "namespace", "uid") if self.fresh else ("name", "namespace", "uid", "resourceVersion")
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {key: meta[key] for key in same},
            "status": status,
        }
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        at = Address(kind, meta["namespace"], meta["name"], "status")
        await self._write("PATCH", at, query, body, content_type=APPLY, why="status", changes=False)
        return True

    async def delete(
        self, live: Object, *, why: str, propagation: Propagation = "Background", same_version: bool = False
    ) -> None:
        """Delete exactly the object that was observed, not a re-created one of that name; already deleted is fine."""
        meta = live["metadata"]
        preconditions = {"uid": meta["uid"]}
        if same_version:
            preconditions["resourceVersion"] = meta["resourceVersion"]
        body = {"propagationPolicy": propagation, "preconditions": preconditions}
        try:
            await self._write("DELETE", address_of(live), {}, body, why=why)
        except NotFound:
            return

    async def evict(self, pod: Object, *, why: str) -> None:
        """Ask for the pod's end, as it was seen. Raises Retryable while its disruption budget forbids it."""
        meta = pod["metadata"]
        preconditions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "deleteOptions": {"preconditions": preconditions},
        }
        try:
            await self._write("POST", address_of(pod, "eviction"), {}, body, why=why)
        except NotFound:
            return

    async def emit(self, about: Object, *, warning: bool, reason: str, message: str, at: str) -> None:
        """An Event about the object, as `Events.emit`."""
        self._figures.events.labels(about["kind"], "Warning" if warning else "Normal", reason).inc()
        await self._events.emit(about, warning=warning, reason=reason, message=message, at=at)

    async def create_event(self, event: Object) -> str:
        """Returns its name."""
        at = Address(EVENT, event["metadata"]["namespace"])
        found = await self._write("POST", at, {}, event, why=f"event {event['reason']}", changes=False)
        return str(found["metadata"]["name"]) if found else ""

    async def change_event(self, namespace: str, name: str, change: Object) -> None:
        """What has happened again: how often, when last, and the message of all."""
        if name:
            content_type = "application/merge-patch+json"
            at = Address(EVENT, namespace, name)
            await self._write("PATCH", at, {}, change, content_type=content_type, why="event", changes=False)

    async def _write(
        self,
        method: str,
        at: Address,
        query: Mapping[str, str],
        body: Object | Sequence[Object],
        *,
        content_type: str = "application/json",
        why: str = "",
        changes: bool = True,
    ) -> Any:
        """What the API server answers, None where nothing is sent. `changes`: something that is there."""
        if changes and not self.fresh:
            raise Unproven(f"{method} {at.path}: not decided by what the API server answers now")
        if self._dry_run:
            log.info("would_write", method=method, path=at.path, why=why)
            return None
        if self._permit is not None and at.subresource != "status" and at.kind != EVENT:
            await self._permit()
        self._fence.check()
        log.debug("write", method=method, path=at.path, why=why)
        store, place = self.stores.of(at.kind, at.namespace), (at.namespace, at.name)
        if store is None:
            return await self._request(method, at.path, query, body, content_type)
        store.doubt(place)
        try:
            found = await self._request(method, at.path, query, body, content_type)
        finally:
            # Also without an answer, for it may have been done. A read that was on its way meanwhile proves nothing.
            asked = store.doubt(place)
        if method != "DELETE" and found.get("kind") == at.kind.name:
            store.answered(found, asked)
        return found

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | Sequence[Object] | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        request = await self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type, **(headers or {})},
            body=body,
            auth_settings=["BearerToken"],
        )
        if body is not None:
            self._fence.check()  # again: making the request may have waited for a new token
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                answer = await self._api.call_api(*request)
                text: bytes = await answer.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._figures.api_requests.labels(method, NO_ANSWER).inc()
            raise Retryable(
                f"the Kubernetes API server did not answer {method} {path}: {no_answer(error, REQUEST_SECONDS)}",
                after=1.0,
            ) from error
        self._figures.api_requests.labels(method, str(answer.status)).inc()
        if 200 <= answer.status < 300:
            return json.loads(text)
        raise refusal(answer.status, method, path, text.decode(errors="replace"))
