"""One shard's part of a pipeline, with all names spelt out. Pure: the same pipeline gives the same shards."""

from __future__ import annotations

from collections.abc import Iterator

from blockhouse_operator.api import labels, names
from blockhouse_operator.api.clickhouse import ClickHouseSpec
from blockhouse_operator.api.kafka import GroupSettings, ShardKafka, ShardTopic, TopicSettings
from blockhouse_operator.api.parts import Ensemble, Zone, ZooKeeperSession
from blockhouse_operator.api.pipeline import BlockAggregatorSpec
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.api.rollout import RolloutSettings, ShardRollout, parallel_shards
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec, Replica, ShardEnsemble
from blockhouse_operator.api.template import ShardTemplate


def resolve(pipeline: BlockAggregator, shard: int) -> ClickHouseShardIngestSpec:
    """The spec of shard number `shard`, which must be below `spec.shards`."""
    spec = pipeline.spec
    ensemble = spec.zookeeper.of(shard)
    if ensemble is None or not 0 <= shard < spec.shards:
        raise ValueError(f"pipeline {pipeline.name} has no shard {shard}")
    topic = {name: getattr(spec.kafka.topic, name) for name in TopicSettings.model_fields}
    group = {name: getattr(spec.kafka, name) for name in GroupSettings.model_fields}
    if spec.kafka.dead_letter_template is not None:
        group["dead_letter_topic"] = names.from_template(spec.kafka.dead_letter_template, shard)
    return ClickHouseShardIngestSpec(
        pipeline=pipeline.name,
        shard=shard,
        replicas=tuple(replicas(pipeline.name, pipeline.namespace, spec.zones, spec.clickhouse, shard)),
        zones=spec.zones,
        quorum=spec.quorum,
        kafka=ShardKafka(
            group=names.from_template(spec.kafka.group_template, shard),
            topic=ShardTopic(name=names.from_template(spec.kafka.topic.name_template, shard), **topic),
            clusters=spec.kafka.clusters,
            **group,
        ),
        clickhouse=_clickhouse(spec.clickhouse),
        config_files=pipeline.files,
        user_files=spec.clickhouse.managed is not None and bool(spec.clickhouse.managed.user_files),
        secrets_hash=pipeline.secrets_hash,
        zookeeper=_zookeeper(pipeline, ensemble),
        tables=spec.tables,
        blocks=spec.blocks,
        aggregator=spec.aggregator,
        rollout=_rollout(pipeline),
        security=spec.security,
        image_pull_secrets=spec.image_pull_secrets,
        network_policy=spec.network_policy,
        admin_tls=spec.admin_tls,
        template=ShardTemplate(**{name: getattr(spec.template, name) for name in ShardTemplate.model_fields}),
        suspend=spec.suspend,
        stop=spec.stop,
    )


def _clickhouse(spec: ClickHouseSpec) -> ClickHouseSpec:
    """Without the files themselves: a shard's pods mount what the pipeline made of them."""
    if spec.managed is None:
        return spec
    return spec.model_copy(update={"managed": spec.managed.model_copy(update={"config_files": (), "user_files": ()})})


def _zookeeper(pipeline: BlockAggregator, ensemble: Ensemble) -> ShardEnsemble:
    own = {name: getattr(ensemble, name) for name in Ensemble.model_fields}
    session = {name: getattr(pipeline.spec.zookeeper, name) for name in ZooKeeperSession.model_fields}
    return ShardEnsemble(**own, **session, root=zookeeper_root(pipeline))


def _rollout(pipeline: BlockAggregator) -> ShardRollout:
    given = pipeline.spec.rollout
    return ShardRollout(
        **{name: getattr(given, name) for name in RolloutSettings.model_fields},
        max_parallel_shards=parallel_shards(given.max_parallel_shards, pipeline.spec.shards),
        restart=pipeline.annotations.get(labels.RESTART, "")[:256],
    )


def zookeeper_root(pipeline: BlockAggregator) -> str:
    """The pipeline's subtree in ZooKeeper."""
    return pipeline.spec.zookeeper.root or names.zookeeper_root(pipeline.name)


def replicas(
    pipeline: str, namespace: str, zones: tuple[Zone, ...], clickhouse: ClickHouseSpec, shard: int
) -> Iterator[Replica]:
    """The replicas of a shard, zone by zone in the order of the spec."""
    counted = 0
    for zone in zones:
        number = counted if zone.first_replica is None else zone.first_replica
        counted += zone.replicas
        for index in range(zone.replicas):
            name = names.replica(pipeline, shard, zone.name, index)
            host = names.replica_host(zone.host_template, name, namespace)
            existing = "127.0.0.1"
            if clickhouse.existing is not None:
                existing = host = names.existing_host(
                    clickhouse.existing.host_template, shard=shard, number=number + index, zone=zone.name, index=index
                )
            yield Replica(name=name, zone=zone.name, index=index, host=host, clickhouse_host=existing)


def all_replicas(pipeline: BlockAggregator) -> tuple[tuple[Replica, ...], ...]:
    """The replicas of every shard, by shard: what `remote_servers` lists."""
    spec: BlockAggregatorSpec = pipeline.spec
    return tuple(
        tuple(replicas(pipeline.name, pipeline.namespace, spec.zones, spec.clickhouse, shard))
        for shard in range(spec.shards)
    )
