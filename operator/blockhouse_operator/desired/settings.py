"""The configuration files of aggregators, verifiers and mirrors, written from the models that read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from blockhouse.config import pipeline as settings
from blockhouse.config.base import Settings
from blockhouse.config.endpoints import ClickHouse, Tls, ZooKeeper
from blockhouse.config.mirror import MirrorConfig, MirrorSpark
from blockhouse.config.secrets import SecretRef
from blockhouse.config.units import seconds
from blockhouse.config.verifier import VerifierConfig
from blockhouse_operator.api import names
from blockhouse_operator.api.declared import given
from blockhouse_operator.api.references import AdminTls
from blockhouse_operator.api.resource import BlockAggregator, KafkaMirror, invalid
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec, Replica
from blockhouse_operator.desired import volumes

BY_THE_OPERATOR: Mapping[str, str] = {
    "pipeline": "the resource's name",
    "shard": "the shard's number",
    "replica": "the replica's name",
    "kafka.topic": "`kafka.topic.nameTemplate`",
    "kafka.group": "`kafka.groupTemplate`",
    "kafka.clusters[]": "`kafka.clusters`, whose certificates and passwords are in Secrets",
    "kafka.offsetMetadataMaxUnits": "`kafka.offsetMetadataMaxBytes`, less one",
    "clickhouse.host": "the replica's own server, or `clickhouse.existing.hostTemplate`",
    "clickhouse.password": "`clickhouse.existing.passwordSecretRef`",
    "clickhouse.tls": "`clickhouse.existing.tls`, whose certificates are in Secrets",
    "zookeeper.servers": "`zookeeper.ensembles`",
    "zookeeper.root": "`zookeeper.root`, or the resource's name",
    "zookeeper.username": "`auth` of the ensemble",
    "zookeeper.password": "`auth` of the ensemble",
    "zookeeper.tls": "`tls` of the ensemble, whose certificates are in Secrets",
    "quorum.replicas": "`quorum`",
    "blocks.tables": "`blocks` of the table",
    "suspendFile": "`suspend`",
    "gate": "tasks run in the driver's own container",
    "admin": "the Service of the replica and the operator's token",
}
"""Settings of an aggregator that are no fields of the resource, and where they come from. All others are."""
BY_THE_OPERATOR_OF_THE_VERIFIER: Mapping[str, str] = {
    "pipeline": "the resource's name",
    "groups": "`kafka.groupTemplate`",
    "topics": "`kafka.topic.nameTemplate`",
    "clusters[]": "`kafka.clusters`, whose certificates and passwords are in Secrets",
    "kubernetesEvents": "the operator itself reports the verdict: the verifier's account has no rights",
    "admin": "the Service of the verifier and the operator's token",
}
"""The same of a verifier."""
BY_THE_OPERATOR_OF_THE_MIRROR: Mapping[str, str] = {
    "name": "the resource's name",
    "source": "`source`, whose certificates and password are in Secrets",
    "target": "`target`, whose certificates and password are in Secrets",
    "spark.lease": "the lease of a task has no end of its own",
    "gate": "tasks run in the driver's own container",
    "admin": "the Service of the mirror and the operator's token",
}
"""The same of a mirror."""


def document(config: Settings) -> str:
    """A configuration file. Defaults are left out, so that a field of a later version changes no file."""
    content = config.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return yaml.safe_dump(content, sort_keys=True, width=120)


def aggregator(spec: ClickHouseShardIngestSpec, replica: Replica) -> settings.AggregatorConfig:
    """The settings of the aggregator of a replica."""
    return settings.AggregatorConfig(
        pipeline=spec.pipeline,
        shard=str(spec.shard),
        replica=replica.name,
        kafka=_kafka(spec),
        clickhouse=_clickhouse(spec, replica),
        zookeeper=_zookeeper(spec),
        quorum=settings.Quorum(replicas=spec.quorum, **given(spec.aggregator, settings.Quorum)),
        blocks=_blocks(spec),
        suspend_file=Path(volumes.SUSPEND),
        spark=settings.Spark(**given(spec.aggregator.spark, settings.Spark)),
        admin=_admin(spec.admin_tls),
        **given(spec.aggregator, settings.AggregatorConfig),
    )


def verifier(pipeline: BlockAggregator) -> VerifierConfig:
    """The settings of the verifier of a pipeline."""
    kafka, shards = pipeline.spec.kafka, range(pipeline.spec.shards)
    return VerifierConfig(
        pipeline=pipeline.name,
        groups=tuple(names.from_template(kafka.group_template, shard) for shard in shards),
        topics=tuple(names.from_template(kafka.topic.name_template, shard) for shard in shards),
        clusters=tuple(volumes.kafka_settings(cluster) for cluster in kafka.clusters if not cluster.retired),
        admin=_admin(pipeline.spec.admin_tls),
        **given(pipeline.spec.verifier, VerifierConfig),
    )


def mirror(resource: KafkaMirror) -> MirrorConfig:
    """The settings of a mirror. Raises InvalidSpec for what the mirror itself would refuse."""
    spec = resource.spec
    chosen = {
        "name": resource.name,
        "source": volumes.kafka_settings(spec.source),
        "target": volumes.kafka_settings(spec.target),
        "spark": given(spec.spark, MirrorSpark),
        "admin": _admin(spec.admin_tls),
        **given(spec, MirrorConfig),
    }
    try:
        # By the names of the file, which are those of the resource: a fault is named as its user wrote it.
        return MirrorConfig.model_validate({to_camel(name): value for name, value in chosen.items()})
    except ValidationError as error:
        raise invalid(f"KafkaMirror {resource.name}", error) from None


def _kafka(spec: ClickHouseShardIngestSpec) -> settings.Kafka:
    chosen = given(spec.kafka, settings.Kafka)
    most = seconds(chosen["session_timeout"]) / settings.HEARTBEATS_PER_SESSION
    chosen["heartbeat_interval"] = min(seconds(chosen["heartbeat_interval"]), most)
    return settings.Kafka(
        topic=spec.kafka.topic.name,
        group=spec.kafka.group,
        clusters=tuple(volumes.kafka_settings(cluster) for cluster in spec.kafka.clusters if not cluster.retired),
        # The client stores one byte more than the text.
        offset_metadata_max_units=spec.kafka.offset_metadata_max_bytes - 1,
        **chosen,
    )


def _admin(tls: AdminTls | None) -> settings.Admin:
    token, found = SecretRef.model_validate({"file": volumes.TOKEN}), volumes.admin_certificate(tls).tls()
    files = None
    if found is not None and found.cert_file is not None and found.key_file is not None:
        files = settings.AdminTls(cert_file=found.cert_file, key_file=found.key_file)
    return settings.Admin(host="0.0.0.0", port=names.ADMIN_PORT, token=token, tls=files)


_PLAIN = {"port": names.NATIVE_PORT}


def _clickhouse(spec: ClickHouseShardIngestSpec, replica: Replica) -> ClickHouse:
    existing = spec.clickhouse.existing
    if existing is None:
        # Within the pod, so no certificate has to name it.
        way = {"port": names.SECURE_NATIVE_PORT, "tls": Tls(verify=False)} if spec.clickhouse.secure else _PLAIN
        return ClickHouse(host=replica.clickhouse_host, **way, **given(spec.clickhouse, ClickHouse))
    login = volumes.Login(volumes.CLICKHOUSE, existing.tls, existing.password_secret_ref)
    return ClickHouse(
        host=replica.clickhouse_host,
        password=login.password(),
        tls=login.tls(),
        **given(existing, ClickHouse),
        **given(spec.clickhouse, ClickHouse),
    )


def _zookeeper(spec: ClickHouseShardIngestSpec) -> ZooKeeper:
    auth, login = spec.zookeeper.auth, volumes.zookeeper_login(spec.zookeeper)
    return ZooKeeper(
        servers=",".join(spec.zookeeper.servers),
        root=spec.zookeeper.root,
        username=auth.username if auth else None,
        password=login.password(),
        tls=login.tls(),
        **given(spec.zookeeper, ZooKeeper),
    )


def _blocks(spec: ClickHouseShardIngestSpec) -> settings.Blocks:
    limits = {
        table.name: settings.BlockLimits(**given(table.blocks, settings.BlockLimits))
        for table in spec.tables
        if table.blocks
    }
    return settings.Blocks(**given(spec.blocks, settings.Blocks), tables=limits)
