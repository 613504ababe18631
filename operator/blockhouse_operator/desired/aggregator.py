"""Everything that a pipeline needs in Kubernetes besides what its shards need."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator

from blockhouse_operator.api import labels, names
from blockhouse_operator.api.labels import API_VERSION
from blockhouse_operator.api.resolve import all_replicas, replicas, resolve
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.desired import clickhouse, parts_login, verifier
from blockhouse_operator.desired.manifest import Manifest, content_of, manifest
from blockhouse_operator.desired.parts_login import PartsLogin
from blockhouse_operator.desired.template import add_metadata

LARGEST_SECRET = 1 << 20
"""Bytes of all files of a Secret or a ConfigMap at most; the API server refuses more."""
PASSWORD = "x" * 43
"""As long as one that the operator makes."""


def children(
    pipeline: BlockAggregator, served_zones: Collection[str] | None = None, shards: Iterable[int] | None = None
) -> tuple[Manifest, ...]:
    """The manifests of a pipeline, in the order in which they are applied. `served_zones` of None serves all zones; of
    the shards there are those of `shards` alone, or all.

    The verifier runs where the first zone is served: one is enough, for it sees all Kafka clusters.
    """
    return tuple(_children(pipeline, served_zones, range(pipeline.spec.shards) if shards is None else shards))


def _children(
    pipeline: BlockAggregator, served_zones: Collection[str] | None, shards: Iterable[int]
) -> Iterator[Manifest]:
    spec = pipeline.spec
    replicas_account = account(pipeline, names.replica_account(pipeline.name))
    add_metadata(replicas_account, spec.template.service_account.metadata)
    yield replicas_account
    if spec.clickhouse.managed is not None and spec.clickhouse.remote_servers == "Full":
        yield cluster_config(pipeline)
    for shard in shards:
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
    """`remote_servers` of all replicas, for pods made by operators that had it in no Secret yet."""
    servers = clickhouse.remote_servers(
        pipeline.spec.clickhouse.cluster, all_replicas(pipeline), secure=pipeline.spec.clickhouse.secure
    )
    return manifest(
        "ConfigMap",
        names.cluster_config(pipeline.name),
        pipeline.namespace,
        labels=labels.of_pipeline(pipeline.name),
        owner=pipeline.reference(),
        data={"remote_servers.xml": servers},
    )


def clickhouse_secret(
    pipeline: BlockAggregator, passwords: clickhouse.Passwords, parts: PartsLogin | None = None
) -> Manifest:
    """Users and `remote_servers` of a managed ClickHouse, and the login `parts` with which replicas fetch parts, as
    files that its servers read again when they change.

    Where these do not list all shards, the second file has the login alone: a shard's servers list their own replicas.
    """
    spec = pipeline.spec.clickhouse
    assert spec.managed is not None
    if spec.remote_servers == "Full":
        servers = clickhouse.remote_servers(spec.cluster, all_replicas(pipeline), passwords, secure=spec.secure)
    else:
        servers = clickhouse.login(passwords)
    users = clickhouse.users(spec.managed, passwords)
    return manifest(
        "Secret",
        names.clickhouse_secret(pipeline.name),
        pipeline.namespace,
        labels=labels.of_pipeline(pipeline.name),
        owner=pipeline.reference(),
        type="Opaque",
        data={
            "users.xml": _encoded(users),
            "remote_servers.xml": _encoded(servers),
            **({parts_login.FILE: _encoded(parts_login.written(parts))} if parts is not None else {}),
        },
    )


def oversize(pipeline: BlockAggregator) -> str:
    """Why the files of that Secret do not fit into one; empty where they do."""
    spec, last = pipeline.spec.clickhouse, pipeline.spec.shards - 1
    if spec.managed is None or spec.remote_servers != "Full":
        return ""
    passwords = clickhouse.Passwords(
        {clickhouse.CLUSTER_USER: PASSWORD}, {user.name: PASSWORD for user in spec.managed.users}
    )
    shard = list(replicas(pipeline.name, pipeline.namespace, pipeline.spec.zones, spec, last))
    # The last shard has the longest names: what it adds is what any of them adds at most.
    one, two = (
        len(clickhouse.remote_servers(spec.cluster, [shard] * count, passwords, secure=spec.secure)) for count in (1, 2)
    )
    parts = parts_login.written(PartsLogin(PASSWORD, (PASSWORD,))) if spec.managed.interserver_secret_ref else ""
    size = one + last * (two - one) + len(clickhouse.users(spec.managed, passwords)) + len(parts)
    if size <= LARGEST_SECRET:
        return ""
    return (
        f"Full lists {pipeline.spec.shards * len(shard)} replicas in {size >> 10} KiB, and a Secret has room for "
        f"{LARGEST_SECRET >> 10} KiB: set it to Shard or None"
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


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()
