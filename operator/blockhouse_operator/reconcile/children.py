"""Make the children of a resource as the manifests say; leave alone what belongs to somebody else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from blockhouse.errors import Permanent
from blockhouse_operator.adapters.kinds import Kind, Object, kind_of
from blockhouse_operator.adapters.kubernetes import Kubernetes
from blockhouse_operator.api.labels import CHILD

log = structlog.get_logger(__name__)

Children = Mapping[tuple[str, str], Object]
"""Live objects by kind and name."""


@dataclass
class Applied:
    """How it went: names of objects written, and what kept others from being written, in words."""

    written: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    ending: list[str] = field(default_factory=list)
    """Objects being deleted: they are made anew once they are gone."""


async def list_children(
    kubernetes: Kubernetes, kinds: Iterable[Kind], namespace: str, labels: Mapping[str, str]
) -> dict[tuple[str, str], Object]:
    found: dict[tuple[str, str], Object] = {}
    for kind in kinds:
        for item in await kubernetes.list(kind, namespace, labels):
            found[kind.name, item["metadata"]["name"]] = item
    return found


async def apply_children(
    kubernetes: Kubernetes, manifests: Sequence[Object], live: Children, owner_uid: str
) -> Applied:
    """In order. One object that is refused does not keep the others from being made."""
    applied = Applied()
    for manifest in manifests:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        found = live.get((manifest["kind"], manifest["metadata"]["name"]))
        try:
            if found is None:
                # A list by label does not show an object of that name that somebody else made.
                meta = manifest["metadata"]
                found = await kubernetes.get(kind_of(manifest), meta["namespace"], meta["name"])
            if found is not None and (whose := belongs_to_another(found, owner_uid)):
                applied.taken.append(f"{name} {whose}; rename this pipeline, or remove that object")
            elif found is not None and found["metadata"].get("deletionTimestamp"):
                applied.ending.append(name)
            elif await kubernetes.apply(manifest, found) != "unchanged":
                applied.written.append(name)
        except Permanent as error:
            log.warning("apply_refused", object=name, error=str(error))
            applied.refused.append(f"{name} cannot be written: {error}")
    return applied


def belongs_to_another(live: Object, owner_uid: str) -> str:
    """Why an object must not be touched; empty when it is ours, or an orphan of ours to be adopted."""
    meta = live["metadata"]
    controllers = [owner for owner in meta.get("ownerReferences", ()) if owner.get("controller")]
    for owner in controllers:
        if owner["uid"] != owner_uid:
            return f"belongs to {owner['kind']} {owner['name']}"
    labels = meta.get("labels") or {}
    if not controllers and any(labels.get(key) != value for key, value in CHILD.items()):
        return "was made by somebody else"
    return ""


async def prune_children(
    kubernetes: Kubernetes, manifests: Sequence[Object], live: Children, owner_uid: str, keep: Iterable[str] = ()
) -> list[str]:
    """Delete what we own and no manifest wants; `keep` are names that somebody else decides about."""
    wanted = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    kept, gone = set(keep), []
    for place, found in live.items():
        owners = [owner["uid"] for owner in found["metadata"].get("ownerReferences", ()) if owner.get("controller")]
        if place in wanted or place[1] in kept or owners != [owner_uid] or found["metadata"].get("deletionTimestamp"):
            continue
        await kubernetes.delete(found, why="not wanted any more")
        gone.append(" ".join(place))
    return gone
