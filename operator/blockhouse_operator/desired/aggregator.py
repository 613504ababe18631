"""Everything that a pipeline needs in Kubernetes besides what its shards need."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterator

from blockhouse_operator.api import labels, names
from blockhouse_operator.api.labels import API_VERSION
from blockhouse_operator.api.resolve import all_replicas, resolve
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.desired import clickhouse, verifier
from blockhouse_operator.desired.manifest import Manifest, content_of, manifest


def children(pipeline: BlockAggregator, served_zones: Collection[str] | None = None) -> tuple[Manifest, ...]:
    """The manifests of a pipeline, in the order in which they are made. `served_zones` of None serves all zones.

    The verifier runs where the first zone is served: one is enough, for it sees all Kafka clusters.
    """
    return tuple(_children(pipeline, served_zones))


def _children(pipeline: BlockAggregator, served_zones: Collection[str] | None) -> Iterator[Manifest]:
    spec = pipeline.spec
    yield account(pipeline, names.replica_account(pipeline.name))
    if spec.clickhouse.managed is not None:
        yield cluster_config(pipeline)
    for shard in range(spec.shards):
        yield shard_ingest(pipeline, shard)
    if spec.verifier.enabled and (served_zones is None or spec.zones[0].name in served_zones):
        yield account(pipeline, names.verifier(pipeline.name))
        yield from verifier.children(pipeline)


def shard_ingest(pipeline: BlockAggregator, shard: int) -> Manifest:
    """One shard of the pipeline."""
    return manifest(
        "ClickHouseShardIngest",
        names.shard_ingest(pipeline.name, shard),
        pipeline.namespace,
        api_version=API_VERSION,
        labels=labels.of_shard(pipeline.name, shard),
        owner=pipeline.reference(),
        spec=content_of(resolve(pipeline, shard)),
    )


def cluster_config(pipeline: BlockAggregator) -> Manifest:
    """`remote_servers`: all replicas of all shards in all zones."""
    servers = clickhouse.remote_servers(pipeline.spec.clickhouse.cluster, all_replicas(pipeline))
    return manifest(
        "ConfigMap",
        names.cluster_config(pipeline.name),
        pipeline.namespace,
        labels=labels.of_pipeline(pipeline.name),
        owner=pipeline.reference(),
        data={"remote_servers.xml": servers},
    )


def account(pipeline: BlockAggregator, name: str) -> Manifest:
    """A ServiceAccount without rights and without a token in its pods."""
    return manifest(
        "ServiceAccount",
        name,
        pipeline.namespace,
        labels=labels.of_pipeline(pipeline.name),
        owner=pipeline.reference(),
        automountServiceAccountToken=False,
    )


def internal_secret(pipeline: BlockAggregator, *, token: str, password: str) -> Manifest:
    """The Secret that is made once and never changed: `token` of the admin API, `password` between replicas.

    Both are given by the caller, from a source of true randomness. Who lost it may delete it and restart the pods.
    """
    return manifest(
        "Secret",
        names.internal_secret(pipeline.name),
        pipeline.namespace,
        labels=labels.of_pipeline(pipeline.name),
        owner=pipeline.reference(),
        type="Opaque",
        data={key: b64encode(value.encode()).decode() for key, value in (("token", token), ("password", password))},
    )
