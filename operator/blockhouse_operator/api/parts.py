"""Parts of the resources that are neither Kafka nor ClickHouse: zones, ensembles, tables, aggregators, rollout."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from blockhouse.config import endpoints
from blockhouse.config import pipeline as settings
from blockhouse.config.verifier import VerifierConfig
from blockhouse_operator.api.base import (
    IMMUTABLE,
    Label,
    LabelMap,
    ListMap,
    Part,
    Rule,
)
from blockhouse_operator.api.clickhouse import Image, Resources
from blockhouse_operator.api.declared import declares
from blockhouse_operator.api.references import ConfigMapKeyRef, PasswordSecretRef, Tls

MAX_SHARDS = 4096
MAX_REPLICAS_PER_ZONE = 16

ZoneName = Annotated[
    str,
    Field(pattern=r"^[a-z0-9]*[a-z][a-z0-9]*(-[a-z0-9]*[a-z][a-z0-9]*)*(-[0-9]+)?$", max_length=16),
]
"""`dc-a`, `eu-central-1a`, `dc-1`. No part but the last may be a bare number, so that names of replicas are unique."""


class Toleration(Part):
    """As in a pod."""

    key: Annotated[str, Field(max_length=253)] | None = None
    """Taint key; without it all of them."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """How `value` is compared."""
    value: Annotated[str, Field(max_length=253)] | None = None
    """Taint value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Taint effect; without it all of them."""
    toleration_seconds: Annotated[int, Field(ge=0)] | None = None
    """For `NoExecute`: how long the pod stays."""


class Zone(Part):
    """A failure domain: a data centre, or a zone of one."""

    name: ZoneName
    """Part of replica names. Another name is another zone: its replicas are new and empty."""
    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS_PER_ZONE)]
    """Replicas of every shard in this zone."""
    node_selector: LabelMap = {}
    """Nodes of this zone."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    """Taints its pods tolerate."""
    host_template: Annotated[str, Field(pattern=r"^[a-z0-9.{}-]+$", max_length=253)] | None = None
    """How other zones reach a replica's Service: `{replica}`, `{namespace}`. Default `{replica}.{namespace}.svc`;
    needed when zones lie in several Kubernetes clusters."""
    first_replica: Annotated[int, Field(ge=0, le=255)] | None = None
    """Number in the shard of this zone's first replica, for `existing.hostTemplate`. Default: the zones before it
    count first, so that adding a replica to them would move the others."""


class ZooKeeperAuth(Part):
    """Login of the digest scheme."""

    username: Annotated[str, Field(min_length=1, max_length=64)]
    """User."""
    secret_ref: PasswordSecretRef
    """Where the password is."""


class ShardRange(Part):
    """Shards from `from` to `to`, both included."""

    rules = (Rule("self.from <= self.to", "from must not be above to"),)

    first: Annotated[int, Field(alias="from", ge=0, le=MAX_SHARDS - 1)]
    """First shard."""
    last: Annotated[int, Field(alias="to", ge=0, le=MAX_SHARDS - 1)]
    """Last shard."""

    @model_validator(mode="after")
    def _ordered(self) -> ShardRange:
        if self.first > self.last:
            raise ValueError("from must not be above to")
        return self

    def __contains__(self, shard: int) -> bool:
        return self.first <= shard <= self.last


class Ensemble(Part):
    """A ZooKeeper ensemble: replication, locks, schema history and markers of its shards."""

    name: Label
    """Its name, for status."""
    servers: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+:[0-9]+$", max_length=253)], ...],
        Field(min_length=1, max_length=16),
    ]
    """`host:port` of each server."""
    auth: ZooKeeperAuth | None = None
    """Login."""
    tls: Tls | None = None
    """TLS, to the servers' `secureClientPort`; an empty object turns it on. ClickHouse 18.16 does not know it."""


class EnsembleOfShards(Ensemble):
    """An ensemble and the shards it serves."""

    shards: ShardRange
    """Its shards."""


@declares(endpoints.ZooKeeper, session_timeout_seconds="session_timeout")
class ZooKeeperSession(Part):
    """How clients of an ensemble behave."""


class ZooKeeperSpec(ZooKeeperSession):
    """ZooKeeper: every shard is served by exactly one ensemble."""

    ensembles: Annotated[
        tuple[EnsembleOfShards, ...],
        Field(min_length=1, max_length=16),
        ListMap(),
        Rule(
            "self.all(a, self.all(b, a.name == b.name || a.shards.to < b.shards.from || b.shards.to < a.shards.from))",
            "a shard is served by one ensemble only",
        ),
    ]
    """The ensembles."""
    root: Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]*[A-Za-z0-9_-]$", max_length=128), IMMUTABLE] | None = None
    """Subtree of the pipeline; default `/blockhouse/NAME`. Cannot be changed."""

    def of(self, shard: int) -> EnsembleOfShards | None:
        """The ensemble of a shard."""
        return next((ensemble for ensemble in self.ensembles if shard in ensemble.shards), None)


@declares(settings.BlockLimits, *settings.BlockLimits.model_fields)
class BlockLimits(Part):
    """When a table's block is sealed; the first limit reached counts."""


@declares(settings.Blocks, "grow_to_bytes", "max_bytes_per_round")
class Blocks(BlockLimits):
    """Limits of every table's blocks."""


class TableSource(Part):
    """Where a table's DDL is."""

    config_map_key_ref: ConfigMapKeyRef
    """A ConfigMap's key."""


class Table(Part):
    """A table to load."""

    rules = (Rule("!(has(self.ddl) && has(self.ddlFrom))", "give at most one of ddl and ddlFrom"),)

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
    """`database.table`."""
    ddl: Annotated[str, Field(min_length=1, max_length=65536)] | None = None
    """`CREATE TABLE` statement; columns may be added later. Without it the table is created elsewhere."""
    ddl_from: TableSource | None = None
    """The same, from a ConfigMap."""
    blocks: BlockLimits | None = None
    """Limits of this table's blocks."""

    @model_validator(mode="after")
    def _one_source(self) -> Table:
        if self.ddl is not None and self.ddl_from is not None:
            raise ValueError("give at most one of ddl and ddlFrom")
        return self


@declares(settings.Spark, *settings.Spark.model_fields)
class Spark(Part):
    """Spark of one aggregator."""


@declares(settings.Quorum, timeout="quorum_timeout")
@declares(
    settings.AggregatorConfig,
    "unknown_table",
    "max_unknown_tables",
    "default_format",
    "provenance",
    "window_flush",
    "handover_after",
    "shutdown_budget",
    "faults",
    "log_format",
    "log_level",
)
class AggregatorSpec(Part):
    """The aggregator beside each replica."""

    image: Image
    """Image; it is never taken from the operator's version, so that an upgrade of the operator restarts nothing."""
    resources: Resources = Resources()
    """Resources of the container."""
    spark: Spark = Spark()
    """Its Spark application."""


@declares(
    VerifierConfig,
    "table_names",
    "stalled_after",
    "log_interval",
    "skew_window",
    "hole_check",
    "lost_after",
    "anomaly_retention",
    "max_anomalies",
    "checkpoint",
    "log_format",
    "log_level",
)
class VerifierSpec(Part):
    """The verifier: proves from the committed offsets that nothing is lost or doubled."""

    enabled: bool = True
    """Whether it runs."""
    image: Image | None = None
    """Image; default: the aggregator's."""
    resources: Resources = Resources()
    """Resources of the container."""


class PodSecurity(Part):
    """Who the containers run as."""

    run_as_user: Annotated[int, Field(ge=1, le=4294967294)] = 10001
    """User id."""
    run_as_group: Annotated[int, Field(ge=1, le=4294967294)] = 10001
    """Group id."""
    fs_group: Annotated[int, Field(ge=1, le=4294967294)] = 10001
    """Group of the volumes."""
