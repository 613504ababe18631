"""The resources as the last list found them, for the metrics: which are ready, and how many have which condition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from blockhouse_operator.adapters.kinds import KAFKA_REASSIGNMENT, Object

ENDING = frozenset({KAFKA_REASSIGNMENT.name})
"""Kinds that are carried out once and never report Ready."""


class Resource(NamedTuple):
    """Names one resource of ours."""

    kind: str
    namespace: str
    name: str


class Condition(NamedTuple):
    """A condition's type and status (`True`, `False`, `Unknown`) of some resources of a kind."""

    kind: str
    type: str
    status: str


class Inventory:
    """The part of a namespace is replaced by each list of it."""

    def __init__(self) -> None:
        self.ready: Mapping[Resource, bool] = {}
        """Of resources that should be: not of those that are suspended. One that has not reported yet is not ready."""
        self.conditions: Mapping[Condition, int] = {}
        self._parts: dict[str | None, tuple[Mapping[Resource, bool], Counter[Condition]]] = {}

    def replace(self, found: Iterable[Object], scope: str | None = None) -> None:
        """All resources of a namespace, or of the cluster. Those of other namespaces stay as they were listed last."""
        ready: dict[Resource, bool] = {}
        conditions: Counter[Condition] = Counter()
        for resource in found:
            kind, meta = resource["kind"], resource["metadata"]
            reported = {one["type"]: one["status"] for one in (resource.get("status") or {}).get("conditions") or ()}
            if kind not in ENDING and reported.get("Suspended") != "True":
                ready[Resource(kind, meta["namespace"], meta["name"])] = reported.get("Ready") == "True"
            conditions.update(Condition(kind, type_, status) for type_, status in reported.items())
        self._parts[scope] = ready, conditions
        self.ready = {resource: well for part, _ in self._parts.values() for resource, well in part.items()}
        self.conditions = sum((counts for _, counts in self._parts.values()), Counter[Condition]())
