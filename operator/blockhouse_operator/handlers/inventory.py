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
    """Replaced as a whole by each list."""

    def __init__(self) -> None:
        self.ready: Mapping[Resource, bool] = {}
        """Of resources that should be: not of those that are suspended. One that has not reported yet is not ready."""
        self.conditions: Mapping[Condition, int] = {}

    def replace(self, found: Iterable[Object]) -> None:
        ready: dict[Resource, bool] = {}
        conditions: Counter[Condition] = Counter()
        for resource in found:
            kind, meta = resource["kind"], resource["metadata"]
            reported = {one["type"]: one["status"] for one in (resource.get("status") or {}).get("conditions") or ()}
            if kind not in ENDING and reported.get("Suspended") != "True":
                ready[Resource(kind, meta["namespace"], meta["name"])] = reported.get("Ready") == "True"
            conditions.update(Condition(kind, type_, status) for type_, status in reported.items())
        self.ready, self.conditions = ready, conditions
