"""Everything that one shard needs in Kubernetes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from blockhouse_operator.api import labels, names
from blockhouse_operator.api.clickhouse import Storage
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.api.shard import Replica
from blockhouse_operator.desired import clickhouse, exposure, pod, settings
from blockhouse_operator.desired.manifest import Manifest, manifest, without_nothing
from blockhouse_operator.desired.template import add_metadata


def children(shard: ClickHouseShardIngest, served_zones: Collection[str] | None = None) -> tuple[Manifest, ...]:
    """The manifests of a shard, in the order in which they are applied. `served_zones` of None serves all zones.

    In a Kubernetes cluster that serves none of the shard's zones there are none.
    """
    served = served_replicas(shard, served_zones)
    return tuple(_children(shard, served)) if served else ()


def served_replicas(shard: ClickHouseShardIngest, served_zones: Collection[str] | None) -> tuple[Replica, ...]:
    """The replicas whose zone this operator serves."""
    return tuple(r for r in shard.spec.replicas if served_zones is None or r.zone in served_zones)


def _children(shard: ClickHouseShardIngest, served: tuple[Replica, ...]) -> Iterator[Manifest]:
    managed = shard.spec.clickhouse.managed
    yield config(shard, served)
    for replica in served:
        yield exposure.replica_service(shard, replica)
    if managed is not None:
        yield exposure.query_service(shard)
        for replica in served:
            yield volume_claim(shard, replica, managed.storage)
    yield exposure.disruption_budget(shard)
    if shard.spec.network_policy.enabled:
        yield exposure.network_policy(shard)
    for replica in served:
        yield stateful_set(shard, replica)


def config(shard: ClickHouseShardIngest, served: tuple[Replica, ...]) -> Manifest:
    """The ConfigMap of the shard: ClickHouse's files, and a configuration per aggregator."""
    spec = shard.spec
    files = {f"{replica.name}.yaml": settings.document(settings.aggregator(spec, replica)) for replica in served}
    files["suspend"] = "true" if spec.suspend or spec.stop else "false"
    if spec.clickhouse.managed is not None:
        files["config.xml"] = clickhouse.server(spec)
    return manifest(
        "ConfigMap",
        names.shard_config(spec.pipeline, spec.shard),
        shard.namespace,
        labels=labels.of_shard(spec.pipeline, spec.shard),
        owner=shard.reference(),
        data=files,
    )


def without_pods(manifests: Iterable[Mapping[str, Any]], replicas: Collection[str]) -> list[Mapping[str, Any]]:
    """The manifests, in which these replicas have no pod."""
    return [
        {**each, "spec": {**each["spec"], "replicas": 0}}
        if each["kind"] == "StatefulSet" and each["metadata"]["name"] in replicas
        else each
        for each in manifests
    ]


def volume_claim(shard: ClickHouseShardIngest, replica: Replica, storage: Storage) -> Manifest:
    """The replica's volume. It belongs to the pipeline, so that a shard's resource that is deleted by hand comes back
    with it; a retained one has no owner, so that it survives the pipeline too."""
    spec = shard.spec
    found = manifest(
        "PersistentVolumeClaim",
        names.claim(replica.name),
        shard.namespace,
        labels=labels.of_replica(spec.pipeline, spec.shard, replica.zone, replica.name),
        owner=(shard.owner or shard.reference()) if storage.deletion_policy == "Delete" else None,
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage.size}},
            **without_nothing(storageClassName=storage.class_name),
        },
    )
    add_metadata(found, spec.template.pvc.metadata)
    return found


def stateful_set(shard: ClickHouseShardIngest, replica: Replica) -> Manifest:
    """One replica. `OnDelete`: the operator decides when its pod is replaced, one in a shard at a time."""
    spec = shard.spec
    return manifest(
        "StatefulSet",
        replica.name,
        shard.namespace,
        api_version="apps/v1",
        labels=labels.of_replica(spec.pipeline, spec.shard, replica.zone, replica.name),
        owner=shard.reference(),
        spec={
            "replicas": 1,
            "serviceName": replica.name,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": {labels.REPLICA: replica.name}},
            "template": pod.template(spec, replica),
        },
    )
