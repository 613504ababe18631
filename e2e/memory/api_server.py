"""A Kubernetes API server in memory, in place of the client's `ApiClient`: what the operator asks, and no more.

Objects are JSON, versions count up over all kinds, StatefulSets have their pod at once and it is ready. Every request
is noted. Lists, watches, server-side apply of one manager, patches, preconditions, evictions.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from e2e.memory.fields import fields_of, merged
from e2e.memory.wire import APPLY, Collection, Place, Refused, Reply, Sent, Stream


class ApiServer:
    """`silent`: watches get no event any more, as behind a connection that is dead and does not know it. `frozen`: no
    request that comes is ever answered."""

    def __init__(self) -> None:
        self.requests: list[Sent] = []
        self.collections: dict[str, Collection] = {}
        self.silent = False
        self.frozen = False
        self.down = False
        self._version = 100
        self._uid = 0
        self.starts_pod: Callable[[dict[str, Any]], dict[str, Any] | None] = pod_of

    async def param_serialize(self, method: str, path: str, **given: Any) -> tuple[Sent]:
        query = dict(given.get("query_params") or ())
        content_type = (given.get("header_params") or {}).get("Content-Type", "")
        return (Sent(method, path, query, given.get("body"), content_type),)

    async def call_api(self, sent: Sent, _request_timeout: Any = None) -> Reply:
        self.requests.append(sent)
        await asyncio.sleep(0)
        if self.frozen:
            await asyncio.Event().wait()
        if self.down:
            raise OSError("connection refused")
        try:
            return self._answer(sent)
        except Refused as refused:
            return Reply(refused.status, json.dumps({"reason": "Refused", "message": str(refused)}).encode())

    def of(self, plural: str) -> dict[Place, dict[str, Any]]:
        """The objects of a kind. Change one by `put`."""
        return self.collections[plural].objects if plural in self.collections else {}

    def put(self, plural: str, found: dict[str, Any], group: str = "/api/v1") -> dict[str, Any]:
        """Create or replace an object, as any client may."""
        collection = self._collection(group, plural)
        meta = found["metadata"]
        place = (meta["namespace"], meta["name"])
        before = collection.objects.get(place)
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        if before is None:
            self._uid += 1
            meta.setdefault("uid", str(UUID(int=self._uid)))
            meta.setdefault("generation", 1)
            meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        elif before.get("spec") != found.get("spec"):
            meta["generation"] = before["metadata"]["generation"] + 1
        collection.objects[place] = found
        collection.texts[place] = json.dumps(found)
        self._happened(collection, "MODIFIED" if before else "ADDED", collection.texts[place])
        return found

    def remove(self, plural: str, place: Place) -> None:
        collection = self.collections[plural]
        found = collection.objects.pop(place)
        del collection.texts[place]
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self._happened(collection, "DELETED", json.dumps(found))
        if plural == "pods":
            self._start_pods(found["metadata"]["namespace"])

    def bookmark(self) -> None:
        """Let every watch hear that it is up to date."""
        line = f'{{"type": "BOOKMARK", "object": {{"metadata": {{"resourceVersion": "{self._version}"}}}}}}\n'
        for stream in self._streams():
            stream.lines.put_nowait(line.encode())

    @property
    def quiet(self) -> bool:
        """Whether every watch has read all that was sent."""
        return all(stream.lines.empty() for stream in self._streams())

    def _streams(self) -> list[Stream]:
        return [stream for collection in self.collections.values() for stream in collection.streams]

    def _happened(self, collection: Collection, sort: str, text: str) -> None:
        line = f'{{"type": "{sort}", "object": {text}}}\n'
        collection.log.append((self._version, line))
        for stream in [] if self.silent else collection.streams:
            stream.lines.put_nowait(line.encode())

    def _collection(self, group: str, plural: str) -> Collection:
        return self.collections.setdefault(plural, Collection(group))

    def _answer(self, sent: Sent) -> Reply:
        group, namespace, plural, name, below = _parsed(sent.path)
        collection = self._collection(group, plural)
        if sent.method == "GET" and not name:
            return self._watch(collection, sent) if sent.watches else self._list(collection, namespace, sent)
        if sent.method == "POST":
            return self._post(plural, namespace, name, below, sent.body)
        place = (namespace, name)
        live = collection.objects.get(place)
        if sent.method == "PATCH" and sent.content_type == APPLY and not below:
            return self._apply(plural, collection, place, sent)
        if live is None:
            raise Refused(404, f"{plural} {name} is not there")
        if sent.method == "GET":
            return Reply(200, collection.texts[place].encode())
        if sent.method == "DELETE":
            _check(live, sent.body.get("preconditions") or {})
            self.remove(plural, place)
            return Reply(200, b'{"kind": "Status", "status": "Success"}')
        return self._change(plural, collection, live, below, sent)

    def _list(self, collection: Collection, namespace: str, sent: Sent) -> Reply:
        found = [
            collection.texts[place]
            for place, item in collection.objects.items()
            if (not namespace or place[0] == namespace) and _selected(item, sent.query.get("labelSelector", ""))
        ]
        head = f'{{"metadata": {{"resourceVersion": "{self._version}"}}, "items": ['
        return Reply(200, f"{head}{','.join(found)}]}}".encode())

    def _watch(self, collection: Collection, sent: Sent) -> Reply:
        """Selectors are not followed: what is watched here is ours."""
        stream, since = Stream(), int(sent.query["resourceVersion"])
        for version, line in collection.log:
            if version > since:
                stream.lines.put_nowait(line.encode())
        collection.streams.append(stream)
        return Reply(200, content=stream)

    def _post(self, plural: str, namespace: str, name: str, below: str, body: dict[str, Any]) -> Reply:
        if below == "eviction":
            live = self.of(plural).get((namespace, name))
            if live is None:
                raise Refused(404, "gone")
            _check(live, body["deleteOptions"]["preconditions"])
            self.remove(plural, (namespace, name))
            return Reply(201, b'{"kind": "Status"}')
        made = copy.deepcopy(body)
        if "generateName" in made["metadata"]:
            made["metadata"]["name"] = f"{made['metadata']['generateName']}{self._version}"
        return Reply(201, json.dumps(self.put(plural, made)).encode())

    def _apply(self, plural: str, collection: Collection, place: Place, sent: Sent) -> Reply:
        before = collection.objects.get(place)
        given = json.loads(json.dumps(sent.body))
        if (version := given["metadata"].pop("resourceVersion", None)) is not None:
            _check(before or {"metadata": {}}, {"resourceVersion": version})
        after = merged(before or {}, given)
        for key in _owned_data(before or {}) - given.get("data", {}).keys():
            after["data"].pop(key)
        after["metadata"]["managedFields"] = [
            {"manager": sent.query["fieldManager"], "operation": "Apply", "fieldsV1": fields_of(given)}
        ]
        if before is not None and after == before:
            return Reply(200, json.dumps(before).encode())
        found = self.put(plural, after, collection.group)
        if plural == "statefulsets":
            self._start_pods(place[0])
        return Reply(201 if before is None else 200, json.dumps(found).encode())

    def _change(self, plural: str, collection: Collection, live: dict[str, Any], below: str, sent: Sent) -> Reply:
        after, body = copy.deepcopy(live), sent.body
        if isinstance(body, list):
            _check(live, {"resourceVersion": body[0]["value"]}, code=422)  # as a real one answers a failed `test`
            after["spec"] = body[1]["value"]
        elif below == "status":
            _check(live, {key: body["metadata"][key] for key in ("uid", "resourceVersion") if key in body["metadata"]})
            after["status"] = json.loads(json.dumps(body["status"]))
        else:
            _check(live, {key: value for key, value in body.get("metadata", {}).items() if key == "resourceVersion"})
            after = merged(after, body)
        found = self.put(plural, after, collection.group)
        if plural == "statefulsets" and found["spec"]["replicas"] == 0:
            pod = (found["metadata"]["namespace"], f"{found['metadata']['name']}-0")
            if pod in self.of("pods"):
                self.remove("pods", pod)
        return Reply(200, json.dumps(found).encode())

    def _start_pods(self, namespace: str) -> None:
        for (where, name), found in list(self.of("statefulsets").items()):
            missing = where == namespace and (where, f"{name}-0") not in self.of("pods")
            pod = self.starts_pod(found) if missing and found["spec"].get("replicas") else None
            if pod is not None:
                self.put("pods", pod)


def pod_of(stateful_set: Mapping[str, Any]) -> dict[str, Any]:
    """Its pod, which runs and is ready."""
    template, meta = copy.deepcopy(stateful_set["spec"]["template"]), stateful_set["metadata"]
    containers = [
        {"name": found["name"], "ready": True, "restartCount": 0, "state": {"running": {}}}
        for found in template["spec"]["containers"]
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "namespace": meta["namespace"], "name": f"{meta['name']}-0"},
        "spec": template["spec"],
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
            "containerStatuses": containers,
        },
    }


def _parsed(path: str) -> tuple[str, str, str, str, str]:
    """Group, namespace, plural, name and subresource."""
    parts = path.strip("/").split("/")
    split = 2 if parts[0] == "api" else 3
    group, rest = "/" + "/".join(parts[:split]), parts[split:]
    namespace = rest[1] if rest[0] == "namespaces" and len(rest) > 2 else ""
    rest = rest[2:] if namespace else rest
    plural, name, below, *_ = [*rest, "", ""]
    return group, namespace, plural, name, below


def _selected(item: Mapping[str, Any], selector: str) -> bool:
    labels = item["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in _pairs(selector))


def _pairs(selector: str) -> Iterator[tuple[str, str]]:
    for pair in filter(None, selector.split(",")):
        key, _, value = pair.partition("=")
        yield key, value


def _owned_data(live: Mapping[str, Any]) -> set[str]:
    """Keys of a Secret or ConfigMap that the last apply gave: those that the next one does not give are removed."""
    fields = live.get("metadata", {}).get("managedFields", ())
    return {key.removeprefix("f:") for found in fields for key in found["fieldsV1"].get("f:data", {})}


def _check(live: Mapping[str, Any], preconditions: Mapping[str, str], *, code: int = 409) -> None:
    for key, value in preconditions.items():
        if live["metadata"].get(key) != value:
            raise Refused(code, f"{key} is {live['metadata'].get(key)}, not {value}")
