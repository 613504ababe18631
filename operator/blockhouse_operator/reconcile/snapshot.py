"""A shard in Kubernetes at one moment: its objects, made as they should be, and what is left to decide by.

It is remembered, for most shards are as they were a minute ago: as long as no watch has reported a change of any object
of a shard, and nothing was to be done about them, nothing is compared again.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from blockhouse_operator.adapters.kinds import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    POD,
    SERVICE,
    SHARD_INGEST,
    STATEFUL_SET,
    VOLUME_CLAIM,
    Object,
)
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.api.shard import Replica
from blockhouse_operator.api.status import RestartStatus
from blockhouse_operator.decide.pods import pod_seen, running
from blockhouse_operator.decide.references import Reference, references_of_pods
from blockhouse_operator.decide.restarts import latest_demands
from blockhouse_operator.decide.seen import RebuildSeen, ReplicaSeen
from blockhouse_operator.decide.shard import may_end
from blockhouse_operator.decide.volumes import claim_size
from blockhouse_operator.desired.shard import children, served_replicas, without_pods
from blockhouse_operator.desired.spec_hash import former_spec_hash, spec_hash
from blockhouse_operator.reconcile.children import Applied, Children, apply_children, list_children, prune_children
from blockhouse_operator.reconcile.mounted import with_mounted_files
from blockhouse_operator.reconcile.rebuild import rebuild_seen, without_pod_of_rebuilt
from blockhouse_operator.reconcile.services import Services

KINDS = (CONFIG_MAP, SERVICE, VOLUME_CLAIM, DISRUPTION_BUDGET, NETWORK_POLICY, STATEFUL_SET)


@dataclass(frozen=True)
class ShardSnapshot:
    """A shard by its objects in Kubernetes alone, which `applied` made as they should be."""

    shard: ClickHouseShardIngest
    live: Object
    """The shard's resource; without its spec and its status where the snapshot is remembered."""
    references: tuple[Reference, ...]
    """What its pods read."""
    replicas: tuple[ReplicaSeen, ...]
    """Those of the spec in the served zones, aggregators not asked yet."""
    surplus: tuple[ReplicaSeen, ...]
    running: frozenset[str]
    """Replicas whose aggregator may answer."""
    rebuild: RebuildSeen
    applied: Applied
    restart: RestartStatus | None = None
    """The last demand to restart all replicas."""
    too_large: tuple[str, ...] = ()
    """Volumes that are larger than in the spec, a sentence each."""
    found: Children = field(default_factory=dict)
    """The live objects that steps are about; none where the snapshot is remembered."""
    pods: Mapping[str, Object] = field(default_factory=dict)
    """By replica; as `found`."""


class ShardSnapshots:
    """Of all shards of all pipelines."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Hashable, ShardSnapshot]] = {}

    def known(self, services: Services, namespace: str, name: str) -> ShardSnapshot | None:
        """That of a shard of which nothing has changed since; None where its objects have to be compared."""
        state, snapshot = self._known.get((namespace, name), (None, None))
        if snapshot is None or services.kubernetes.fresh or state != _state_of(services, snapshot.shard):
            return None
        return snapshot

    async def look(self, services: Services, shard: ClickHouseShardIngest, live: Object) -> ShardSnapshot:
        """Read the objects of a shard and write them as they should be. Raises Unproven as `Kubernetes` does."""
        state = _state_of(services, shard)
        of_shard = labels.of_shard(shard.spec.pipeline, shard.spec.shard)
        found = await list_children(services.kubernetes, KINDS, shard.namespace, of_shard)
        pods = await list_pods(services, shard)
        leaving = [name for name in replicas_of(found, shard.owners()) if name not in shard.spec.replica_names()]
        manifests = with_mounted_files(shard, leaving, pods, children(shard, services.zones), found)
        if may_end(shard.spec, shard.status):
            manifests = without_pods(manifests, shard.spec.replica_names())
        manifests, too_large = with_claim_sizes(without_pod_of_rebuilt(shard, manifests, found), found)
        applied = await apply_children(services.kubernetes, manifests, found, shard.owners())
        gone = await prune_children(services.kubernetes, manifests, found, shard.uid, keep=leaving)
        snapshot = snapshot_of(services, shard, live, found, pods, applied, too_large)
        self._known.pop((shard.namespace, shard.name), None)
        if state is not None and not gone and applied == Applied():
            about = {**live, "metadata": {**live["metadata"], "managedFields": []}, "spec": {}, "status": {}}
            remembered = replace(snapshot, live=about, found={}, pods={})
            self._known[shard.namespace, shard.name] = (state, remembered)
        return snapshot

    async def observe(self, services: Services, shard: ClickHouseShardIngest, live: Object) -> ShardSnapshot:
        """Read the objects of a shard and leave them as they are."""
        self.forget(shard.namespace, shard.name)
        of_shard = labels.of_shard(shard.spec.pipeline, shard.spec.shard)
        found = await list_children(services.kubernetes, KINDS, shard.namespace, of_shard)
        return snapshot_of(services, shard, live, found, await list_pods(services, shard), Applied())

    def forget(self, namespace: str, name: str) -> None:
        """The shard is gone."""
        self._known.pop((namespace, name), None)


def snapshot_of(
    services: Services,
    shard: ClickHouseShardIngest,
    live: Object,
    found: Children,
    pods: Mapping[str, Object],
    applied: Applied,
    too_large: Sequence[str] = (),
) -> ShardSnapshot:
    """`found` and `pods` are the live objects of the shard."""
    served, restart = served_replicas(shard, services.zones), _demand(shard, pods)
    surplus = [name for name in replicas_of(found, shard.owners()) if name not in shard.spec.replica_names()]
    return ShardSnapshot(
        shard=shard,
        live=live,
        references=references_of_pods(shard.spec),
        replicas=tuple(_replica(shard, replica, found, pods, restart) for replica in served),
        surplus=tuple(_surplus(name, found, pods) for name in surplus),
        running=frozenset(name for name, pod in pods.items() if running(pod)),
        rebuild=rebuild_seen(shard, found),
        applied=applied,
        restart=restart,
        too_large=tuple(too_large),
        found=found,
        pods=pods,
    )


async def list_pods(services: Services, shard: ClickHouseShardIngest) -> dict[str, Object]:
    """The pods of a shard, by replica."""
    of_shard = labels.of_shard(shard.spec.pipeline, shard.spec.shard)
    return {
        (pod["metadata"].get("labels") or {}).get(labels.REPLICA, ""): pod
        for pod in await services.kubernetes.list(POD, shard.namespace, of_shard)
    }


def replicas_of(live: Children, owners: Collection[str]) -> list[str]:
    """Replicas that exist: those with a StatefulSet, and those of which a volume claim of ours is left."""
    found = {name for kind, name in live if kind == STATEFUL_SET.name}
    for (kind, _), claim in live.items():
        mine = any(owner["uid"] in owners for owner in claim["metadata"].get("ownerReferences", ()))
        replica = (claim["metadata"].get("labels") or {}).get(labels.REPLICA)
        if kind == VOLUME_CLAIM.name and mine and replica and not claim["metadata"].get("deletionTimestamp"):
            found.add(replica)
    return sorted(found)


def _state_of(services: Services, shard: ClickHouseShardIngest) -> Hashable | None:
    """Changes whenever the shard's resource or an object of it does; None where the watches do not know."""
    stores = services.kubernetes.stores
    resources = stores.of(SHARD_INGEST, shard.namespace)
    version = resources.version((shard.namespace, shard.name)) if resources is not None else None
    objects = stores.state_of((shard.namespace, shard.spec.pipeline, str(shard.spec.shard)))
    return None if version is None or objects is None else (shard.uid, version, objects)


def with_claim_sizes(manifests: Sequence[Object], live: Children) -> tuple[list[Object], list[str]]:
    """The manifests, in which each volume claim asks for a size that the API server accepts; and why it is another."""
    found: list[Object] = []
    too_large = []
    for manifest in manifests:
        known = live.get((manifest["kind"], manifest["metadata"]["name"]))
        if manifest["kind"] == VOLUME_CLAIM.name and known is not None:
            size, why = claim_size(manifest["spec"]["resources"]["requests"]["storage"], known)
            too_large += [why] if why else []
            spec = {**manifest["spec"], "resources": {"requests": {"storage": size}}}
            found.append({**manifest, "spec": spec})
        else:
            found.append(manifest)
    return found, too_large


def _demand(shard: ClickHouseShardIngest, pods: Mapping[str, Object]) -> RestartStatus | None:
    """The last demand to restart all replicas. What was asked before there were pods is about none."""
    asked = shard.annotations.get(labels.RESTART, "")[:256]
    there = [pod["metadata"]["uid"] for pod in pods.values()]
    return latest_demands(shard.status.restart, shard.spec.rollout.restart, asked, there)


def _replica(
    shard: ClickHouseShardIngest,
    desired: Replica,
    live: Children,
    pods: Mapping[str, Object],
    restart: RestartStatus | None,
) -> ReplicaSeen:
    found, pod = live.get((STATEFUL_SET.name, desired.name)), pods.get(desired.name)
    return ReplicaSeen(
        name=desired.name,
        zone=desired.zone,
        desired_spec_hash=spec_hash(shard.spec, desired),
        former_spec_hash=former_spec_hash(shard.spec, desired),
        scale=found["spec"].get("replicas", 1) if found else None,
        pod=pod_seen(pod, restart) if pod else None,
    )


def _surplus(name: str, live: Children, pods: Mapping[str, Object]) -> ReplicaSeen:
    found, pod = live.get((STATEFUL_SET.name, name)), pods.get(name)
    object_ = found or live[VOLUME_CLAIM.name, names.claim(name)]
    zone = (object_["metadata"].get("labels") or {}).get(labels.ZONE, "")
    scale = found["spec"].get("replicas", 1) if found else None
    return ReplicaSeen(name=name, zone=zone, scale=scale, pod=pod_seen(pod) if pod else None)
