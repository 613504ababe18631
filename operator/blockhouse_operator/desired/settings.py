"""The configuration files of aggregators and verifier, written from the models that read them."""

from __future__ import annotations

from pathlib import Path

import yaml

from blockhouse.config import pipeline as settings
from blockhouse.config.base import Settings
from blockhouse.config.endpoints import ClickHouse, ZooKeeper
from blockhouse.config.secrets import SecretRef
from blockhouse.config.verifier import VerifierConfig
from blockhouse_operator.api import names
from blockhouse_operator.api.base import seconds, size_bytes
from blockhouse_operator.api.parts import BlockLimits
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec, Replica
from blockhouse_operator.desired import volumes


def document(config: Settings) -> str:
    """A configuration file. Defaults are left out, so that a field of a later version changes no file."""
    content = config.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return yaml.safe_dump(content, sort_keys=True, width=120)


def aggregator(spec: ClickHouseShardIngestSpec, replica: Replica) -> settings.AggregatorConfig:
    """What the aggregator of a replica is told."""
    return settings.AggregatorConfig(
        pipeline=spec.pipeline,
        shard=str(spec.shard),
        replica=replica.name,
        kafka=_kafka(spec),
        clickhouse=_clickhouse(spec, replica),
        zookeeper=_zookeeper(spec),
        quorum=settings.Quorum(replicas=spec.quorum),
        blocks=_blocks(spec),
        handover_after=seconds(spec.aggregator.handover_after),
        shutdown_budget=seconds(spec.aggregator.shutdown_budget),
        suspend_file=Path(volumes.SUSPEND),
        unknown_table=spec.aggregator.unknown_table,
        default_format=spec.aggregator.default_format,
        provenance=spec.aggregator.provenance,
        spark=settings.Spark(master=spec.aggregator.spark.master, conf=spec.aggregator.spark.conf),
        admin=_admin(),
        log_level=spec.aggregator.log_level,
    )


def verifier(pipeline: BlockAggregator) -> VerifierConfig:
    """What the verifier of a pipeline is told."""
    kafka, shards = pipeline.spec.kafka, range(pipeline.spec.shards)
    return VerifierConfig(
        pipeline=pipeline.name,
        groups=tuple(names.from_template(kafka.group_template, shard) for shard in shards),
        topics=tuple(names.from_template(kafka.topic.name_template, shard) for shard in shards),
        clusters=tuple(volumes.kafka_settings(cluster) for cluster in kafka.clusters if not cluster.retired),
        admin=_admin(),
    )


def _kafka(spec: ClickHouseShardIngestSpec) -> settings.Kafka:
    session = seconds(spec.kafka.session_timeout)
    return settings.Kafka(
        topic=spec.kafka.topic.name,
        group=spec.kafka.group,
        clusters=tuple(volumes.kafka_settings(cluster) for cluster in spec.kafka.clusters if not cluster.retired),
        session_timeout=session,
        heartbeat_interval=min(settings.Kafka.model_fields["heartbeat_interval"].default, session / 3),
        # The client stores one byte more than the text.
        offset_metadata_max_units=spec.kafka.offset_metadata_max_bytes - 1,
        weak_offsets_topic=spec.kafka.weak_offsets_topic,
    )


def _admin() -> settings.Admin:
    token = SecretRef.model_validate({"file": volumes.TOKEN})
    return settings.Admin(host="0.0.0.0", port=names.ADMIN_PORT, token=token)


def _clickhouse(spec: ClickHouseShardIngestSpec, replica: Replica) -> ClickHouse:
    existing = spec.clickhouse.existing
    if existing is None:
        return ClickHouse(host=replica.clickhouse_host, port=names.NATIVE_PORT)
    login = volumes.Login(volumes.CLICKHOUSE, existing.tls, existing.password_secret_ref)
    return ClickHouse(
        host=replica.clickhouse_host,
        port=existing.port,
        user=existing.user,
        password=login.password(),
        tls=login.tls(),
    )


def _zookeeper(spec: ClickHouseShardIngestSpec) -> ZooKeeper:
    auth = spec.zookeeper.auth
    login = volumes.Login(volumes.ZOOKEEPER, None, auth.secret_ref if auth else None)
    return ZooKeeper(
        servers=",".join(spec.zookeeper.servers),
        root=spec.zookeeper.root,
        username=auth.username if auth else None,
        password=login.password(),
    )


def _blocks(spec: ClickHouseShardIngestSpec) -> settings.Blocks:
    return settings.Blocks(
        **_limits(spec.blocks).model_dump(),
        grow_to_bytes=size_bytes(spec.blocks.grow_to_bytes),
        max_bytes_per_round=size_bytes(spec.blocks.max_bytes_per_round),
        tables={table.name: _limits(table.blocks) for table in spec.tables if table.blocks},
    )


def _limits(limits: BlockLimits) -> settings.BlockLimits:
    return settings.BlockLimits(
        max_bytes=size_bytes(limits.max_bytes), max_rows=limits.max_rows, max_age=seconds(limits.max_age)
    )
