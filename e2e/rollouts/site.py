"""What an operator of one shard knows of it: where its replicas are, and the desired state.

JSON, so that it can be a file that another process writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

from blockhouse_operator.api.parts import Table
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.resource import ClickHouseShardIngest, Resource, parse_block_aggregator
from blockhouse_operator.api.rollout import ShardRollout
from blockhouse_operator.api.status import ClickHouseShardIngestStatus
from e2e.pipeline import Pipeline

_EXAMPLE = Path(__file__).parents[2] / "examples" / "one-datacenter.yaml"


class Address(BaseModel):
    """A replica: the admin API of its aggregator, and its ClickHouse."""

    model_config = ConfigDict(frozen=True)

    url: str
    host: str
    port: int


class Site(BaseModel):
    """Where everything is."""

    model_config = ConfigDict(frozen=True)

    pipeline: str
    topic: str
    partitions: int
    clusters: tuple[str, ...]
    replicas: Mapping[str, Address]


class Desired(BaseModel):
    """The part of the spec that changes. `tables` are DDL statements by name."""

    model_config = ConfigDict(frozen=True)

    generation: int = 1
    tables: Mapping[str, str] = {}
    rollout: ShardRollout = ShardRollout()


def site_of(pipeline: Pipeline) -> Site:
    """The site of aggregators on this machine."""
    servers = {server.replica: server for server in pipeline.stack.clickhouse.values()}
    return Site(
        pipeline=pipeline.spec.name,
        topic=pipeline.spec.topic,
        partitions=pipeline.spec.partitions,
        clusters=tuple(pipeline.kafka),
        replicas={
            name: Address(url=aggregator.url, host=servers[name].host, port=servers[name].port)
            for name, aggregator in pipeline.aggregators.items()
        },
    )


def shard_of(site: Site, desired: Desired, status: ClickHouseShardIngestStatus) -> ClickHouseShardIngest:
    """The shard as its custom resource would have it."""
    spec = resolve(parse_block_aggregator(yaml.safe_load(_EXAMPLE.read_text())), 0)
    topic = spec.kafka.topic.model_copy(update={"name": site.topic, "partitions": site.partitions})
    cluster, replica = spec.kafka.clusters[0], spec.replicas[0]
    clusters = tuple(cluster.model_copy(update={"name": name}) for name in site.clusters)
    replicas = tuple(
        replica.model_copy(update={"name": name, "index": index}) for index, name in enumerate(site.replicas)
    )
    changes = {
        "pipeline": site.pipeline,
        "replicas": replicas,
        "kafka": spec.kafka.model_copy(update={"topic": topic, "clusters": clusters}),
        "tables": tuple(Table(name=name, ddl=ddl) for name, ddl in desired.tables.items()),
        "rollout": desired.rollout,
    }
    return Resource(
        kind="ClickHouseShardIngest",
        name=f"{site.pipeline}-0",
        namespace="default",
        uid="shard",
        generation=desired.generation,
        spec=spec.model_copy(update=changes),
        status=status,
    )
