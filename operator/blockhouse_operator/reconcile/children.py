"""Make the children of a resource as in the manifests; leave alone what belongs to another owner.

Volume claims are never pruned: only the plan of a removal, which knows where the data is, deletes one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.adapters.kinds import VOLUME_CLAIM, Kind, Object, kind_of
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
    """Objects being deleted: they are created again once they are gone."""
    left: list[str] = field(default_factory=list)
    """Objects that were not compared, for it took too long."""

    def add(self, other: Applied) -> None:
        """Add how other objects went."""
        self.written += other.written
        self.taken += other.taken
        self.refused += other.refused
        self.ending += other.ending
        self.left += other.left


def raise_refused(name: str, applied: Applied) -> None:
    """Raise Retryable where a write was refused: the queue tries it again later each time, not with every reconcile."""
    if applied.refused:
        raise Retryable(f"{name}: {len(applied.refused)} writes were refused: {applied.refused[0]}")


async def list_children(
    kubernetes: Kubernetes, kinds: Iterable[Kind], namespace: str, labels: Mapping[str, str]
) -> dict[tuple[str, str], Object]:
    """The objects with these labels, by (kind, name). Raises as `Kubernetes.list`."""
    found: dict[tuple[str, str], Object] = {}
    for kind in kinds:
        for item in await kubernetes.list(kind, namespace, labels):
            found[kind.name, item["metadata"]["name"]] = item
    return found


async def apply_children(
    kubernetes: Kubernetes,
    manifests: Sequence[Object],
    live: Children,
    owners: Collection[str],
    over: Callable[[], bool] = lambda: False,
    *,
    alone: bool = False,
) -> Applied:
    """In order; `owners` are UIDs of which one may control a child. One object that is refused stops no other. Once it
    is `over`, the others are left as they are. `alone` as in `Kubernetes.apply`."""
    applied = Applied()
    for manifest in manifests:
        await asyncio.sleep(0)  # thousands that are as they should be must not keep the lease from being renewed
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        if over():
            applied.left.append(name)
            continue
        found = live.get((manifest["kind"], manifest["metadata"]["name"]))
        try:
            if found is None:
                # A list by label does not show an object of that name that another client created.
                meta = manifest["metadata"]
                found = await kubernetes.get(kind_of(manifest), meta["namespace"], meta["name"])
            if found is not None and (whose := belongs_to_another(found, owners)):
                applied.taken.append(f"{name} {whose}; rename this pipeline, or remove that object")
            elif found is not None and found["metadata"].get("deletionTimestamp"):
                applied.ending.append(name)
            elif await kubernetes.apply(manifest, found, alone=alone) != "unchanged":
                applied.written.append(name)
        except Permanent as error:
            log.warning("apply_refused", object=name, error=str(error))
            applied.refused.append(f"{name} cannot be written: {error}")
    return applied


def belongs_to_another(live: Object, owners: Collection[str]) -> str:
    """Why an object must not be touched; empty when it is ours, or an orphan of ours to be adopted."""
    meta = live["metadata"]
    controllers = [owner for owner in meta.get("ownerReferences", ()) if owner.get("controller")]
    for owner in controllers:
        if owner["uid"] not in owners:
            return f"belongs to {owner['kind']} {owner['name']}"
    labels = meta.get("labels") or {}
    if not controllers and any(labels.get(key) != value for key, value in CHILD.items()):
        return "was not created by a Blockhouse operator"
    return ""


async def prune_children(
    kubernetes: Kubernetes, manifests: Sequence[Object], live: Children, owner_uid: str, keep: Iterable[str] = ()
) -> list[str]:
    """Delete what we own and no manifest describes; `keep` are names that another part of the plan decides about."""
    desired = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    kept, gone = set(keep), []
    for place, found in live.items():
        owners = [owner["uid"] for owner in found["metadata"].get("ownerReferences", ()) if owner.get("controller")]
        if place[0] == VOLUME_CLAIM.name or found["metadata"].get("deletionTimestamp"):
            continue
        if place in desired or place[1] in kept or owners != [owner_uid]:
            continue
        await kubernetes.delete(found, why="not in the spec")
        gone.append(" ".join(place))
    return gone
