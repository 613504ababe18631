"""The resources as the last list found them, for the metrics: conditions of each and of all, and changes under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from blockhouse_operator.adapters.kinds import KAFKA_REASSIGNMENT, SHARD_INGEST, Object
from blockhouse_operator.api import labels
from blockhouse_operator.api.conditions import NORMALLY_FALSE, ConditionType, Reason

ENDING = frozenset({KAFKA_REASSIGNMENT.name})
"""Kinds that are carried out once and never report Ready."""
CHANGES = ("restart", "rebuild", "tables")


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


class OwnCondition(NamedTuple):
    """A condition of one resource."""

    kind: str
    namespace: str
    name: str
    type: str
    status: str


class Change(NamedTuple):
    """What shards of a pipeline are in the middle of, one of `CHANGES`."""

    namespace: str
    pipeline: str
    change: str


@dataclass
class _Part:
    """A namespace, or the cluster."""

    ready: dict[Resource, bool] = field(default_factory=dict)
    conditions: Counter[Condition] = field(default_factory=Counter)
    abnormal: list[OwnCondition] = field(default_factory=list)
    changing: Counter[Change] = field(default_factory=Counter)

    def add(self, resource: Object) -> None:
        kind, meta, status = resource["kind"], resource["metadata"], resource.get("status") or {}
        place = Resource(kind, meta["namespace"], meta["name"])
        found = status.get("conditions") or ()
        reported = {one["type"]: one["status"] for one in found}
        if kind not in ENDING and reported.get(ConditionType.SUSPENDED) != "True":
            self.ready[place] = reported.get(ConditionType.READY) == "True"
        self.conditions.update(Condition(kind, type_, status) for type_, status in reported.items())
        self.abnormal += [OwnCondition(*place, one["type"], one["status"]) for one in found if _abnormal(one)]
        if kind == SHARD_INGEST.name:
            pipeline = (meta.get("labels") or {}).get(labels.PIPELINE, "")
            under_way = set(_changes(status))
            for change in CHANGES:  # 0 is shown, too
                self.changing[Change(meta["namespace"], pipeline, change)] += change in under_way


class Inventory:
    """The part of a namespace is replaced by each list of it."""

    def __init__(self) -> None:
        self.ready: Mapping[Resource, bool] = {}
        """Of resources that should be: not of those that are suspended. One that has not reported yet is not ready."""
        self.conditions: Mapping[Condition, int] = {}
        self.abnormal: tuple[OwnCondition, ...] = ()
        """Those that are not as they are when all is well; without Ready, and without what the spec switches off."""
        self.changing: Mapping[Change, int] = {}
        """Shards of each pipeline that are in the middle of a change."""
        self._parts: dict[str | None, _Part] = {}

    def replace(self, found: Iterable[Object], scope: str | None = None) -> None:
        """All resources of a namespace, or of the cluster. Those of other namespaces stay as they were listed last."""
        listed = _Part()
        for resource in found:
            listed.add(resource)
        self._parts[scope] = listed
        parts = self._parts.values()
        self.ready = {resource: well for part in parts for resource, well in part.ready.items()}
        self.conditions = sum((part.conditions for part in parts), Counter[Condition]())
        self.abnormal = tuple(each for part in parts for each in part.abnormal)
        self.changing = {change: count for part in parts for change, count in part.changing.items()}


def _abnormal(one: Mapping[str, Any]) -> bool:
    if one["type"] == ConditionType.READY or one.get("reason") == Reason.DISABLED:
        return False
    return bool(one["status"] != ("False" if one["type"] in NORMALLY_FALSE else "True"))


def _changes(status: Mapping[str, Any]) -> Iterator[str]:
    if (status.get("rollout") or {}).get("replica"):
        yield "restart"
    if (status.get("rebuild") or {}).get("replica"):
        yield "rebuild"
    if any(table.get("heldSince") for table in status.get("tables") or ()):
        yield "tables"
