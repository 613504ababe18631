"""Reads objects over one connection: what scenarios wait for they ask several times a second, and each `kubectl get`
takes a tenth of a second of processor time that what they wait for needs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubernetes import config
from kubernetes.dynamic import DynamicClient, Resource
from kubernetes.dynamic.exceptions import DynamicApiError
from urllib3.exceptions import HTTPError

from e2e.cluster.spec import ClusterError

SECONDS = 30.0
"""For one answer."""
PAGE = 500
"""Objects of a list in one answer."""


class Reader:
    """As the user of a kubeconfig, from any thread. Every method raises ClusterError with the server's answer."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._client: DynamicClient | None = None
        self._resources: dict[str, Resource] = {}
        self._discovery = threading.Lock()
        """The client's discovery is not safe for two threads: one would empty what the other goes through."""

    def object(self, kind: str, name: str, namespace: str | None) -> dict[str, Any]:
        """One object. `kind` is its plural, singular or short name."""
        return self._answer(self._resource(kind), name=name, namespace=namespace)

    def objects(self, kinds: str, namespace: str | None, selector: str) -> list[dict[str, Any]]:
        """All objects of some kinds, separated by commas, that have these labels; those of all namespaces for None."""
        return [
            {"apiVersion": resource.group_version, "kind": resource.kind} | item
            for resource in map(self._resource, kinds.split(","))
            for page in self._pages(resource, namespace, selector)
            for item in page["items"]
        ]

    def _pages(self, resource: Resource, namespace: str | None, selector: str) -> Iterator[dict[str, Any]]:
        options: dict[str, Any] = {"label_selector": selector or None, "limit": PAGE}
        while True:
            page = self._answer(resource, namespace=namespace, **options)
            yield page
            if not (following := page["metadata"].get("continue")):
                return
            options["_continue"] = following

    def _answer(self, resource: Resource, **options: Any) -> dict[str, Any]:
        try:
            answer = self._connected().get(  # type: ignore[no-untyped-call]
                resource, serialize=False, _request_timeout=SECONDS, **options
            )
        except DynamicApiError as error:
            raise ClusterError(f"`get {resource.name} {options.get('name') or ''}` failed: {_reason(error)}") from error
        except (HTTPError, OSError) as error:
            raise ClusterError(f"`get {resource.name}` failed: {error}") from error
        found: dict[str, Any] = json.loads(answer.data)
        return found

    def _connected(self) -> DynamicClient:
        if self._client is None:
            # By default the kinds of a server are kept in a file that goes by its address, which the next one may have.
            kinds = self._kubeconfig.with_suffix(".kinds.json")
            try:
                client = config.new_client_from_config(str(self._kubeconfig))  # type: ignore[no-untyped-call]
                self._client = DynamicClient(client, cache_file=str(kinds))  # type: ignore[no-untyped-call]
            except (config.ConfigException, HTTPError, OSError, DynamicApiError) as error:
                raise ClusterError(f"no connection by {self._kubeconfig}: {error}") from error
        return self._client

    def _resource(self, name: str) -> Resource:
        with self._discovery:
            return self._discovered(name)

    def _discovered(self, name: str) -> Resource:
        if name not in self._resources:
            known = self._connected().resources
            try:
                known.invalidate_cache()  # it may have been defined meanwhile
                # A kind of list is there as a subclass, which answers to the names of the kind that it lists.
                found = sorted((each for together in known for each in together if type(each) is Resource), key=_rank)
                self._resources = {alias: each for each in found for alias in _aliases(each)}
            except (HTTPError, OSError, DynamicApiError) as error:
                raise ClusterError(f"what kinds there are is not known: {error}") from error
        if name not in self._resources:
            raise ClusterError(f"`get {name}` failed: the server has no resource of that name")
        return self._resources[name]


def _rank(resource: Resource) -> tuple[bool, bool]:
    """Of two kinds of one name the core's is meant, and of a group the version that it prefers: the last one counts."""
    return not resource.group, bool(resource.preferred)


def _aliases(resource: Resource) -> tuple[str, ...]:
    return (resource.name, resource.singular_name, resource.kind.lower(), *(resource.short_names or ()))


def _reason(error: DynamicApiError) -> str:
    try:
        status = json.loads(error.body or "")
    except ValueError:
        return str(error)
    return f"Error from server ({status.get('reason')}): {status.get('message')}"
