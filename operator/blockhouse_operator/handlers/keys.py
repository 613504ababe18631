"""Which key an event is about: the resource itself, or the one that a child belongs to. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR, KAFKA_MIRROR, KAFKA_REASSIGNMENT, SHARD_INGEST, Object
from blockhouse_operator.api import labels, names


class Key(NamedTuple):
    """A resource that is due; `leftovers` are those of a pipeline that is gone."""

    sort: Literal["pipeline", "shard", "leftovers", "reassignment", "mirror"]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.sort} {self.namespace}/{self.name}"


def of_resource(resource: Object) -> Key | None:
    """The key of a resource of ours."""
    meta = resource["metadata"]
    if resource.get("kind") == BLOCK_AGGREGATOR.name:
        return Key("pipeline", meta["namespace"], meta["name"])
    if resource.get("kind") == SHARD_INGEST.name:
        return Key("shard", meta["namespace"], meta["name"])
    if resource.get("kind") == KAFKA_REASSIGNMENT.name:
        return Key("reassignment", meta["namespace"], meta["name"])
    if resource.get("kind") == KAFKA_MIRROR.name:
        return Key("mirror", meta["namespace"], meta["name"])
    return None


def asks_by_annotation(resource: Object) -> bool:
    """Whether an annotation that is taken away once it was followed asks for a reconcile."""
    asked = labels.REBALANCE in (resource["metadata"].get("annotations") or {})
    return asked and resource.get("kind") == KAFKA_MIRROR.name


def of_child(child: Object) -> Key | None:
    """The key of the resource that a labelled child belongs to; None for what carries no such label."""
    meta = child["metadata"]
    found = meta.get("labels") or {}
    if labels.REASSIGNMENT in found:  # its record, which outlives it
        return Key("reassignment", meta["namespace"], found[labels.REASSIGNMENT])
    if labels.MIRROR in found:
        return Key("mirror", meta["namespace"], found[labels.MIRROR])
    pipeline, shard = found.get(labels.PIPELINE), found.get(labels.SHARD)
    if pipeline is None:
        return None
    if shard is None or not shard.isdigit():
        return Key("pipeline", meta["namespace"], pipeline)
    return Key("shard", meta["namespace"], names.shard_ingest(pipeline, int(shard)))
