"""Settings of the verifier: the documented YAML file, validated at once. See `docs/verifier.md`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from blockhouse.config.base import Settings
from blockhouse.config.endpoints import NAME, KafkaCluster
from blockhouse.config.pipeline import DAY, Admin
from blockhouse.config.units import Duration


class Checkpoint(Settings):
    """Where the verifier remembers how far it has come: a compacted topic in each cluster, about that cluster only."""

    enabled: bool = True
    """Whether to remember, across restarts, how far it has come. Without, all history is read again."""
    topic: str | None = Field(default=None, min_length=1, max_length=249)
    """The compacted topic for that, in each cluster; default: `blockhouse-verifier.` and the pipeline."""
    interval: Duration = Field(default=10, ge=1, le=DAY)
    """How often."""
    replication_factor: int = Field(default=-1, ge=-1, le=16)
    """Of that topic, when it has to be created; -1: the brokers' default."""


class KubernetesEvents(Settings):
    """The object that an anomaly's Kubernetes Event is about; the verifier must run in its cluster."""

    namespace: str = Field(min_length=1)
    """Namespace of the object that anomalies become Kubernetes Events of; without this section there are none."""
    name: str = Field(min_length=1)
    """Its name."""
    kind: str = "BlockAggregator"
    """Its kind."""
    api_version: str = "ingest.blockhouse.dev/v1alpha1"
    """Its API version."""


class VerifierConfig(Settings):
    """Everything one verifier needs to know: it watches the groups of one pipeline in all its Kafka clusters."""

    pipeline: str = Field(pattern=NAME)
    """Name of the pipeline, as in the aggregators' configuration."""
    groups: tuple[str, ...] = Field(min_length=1)
    """Consumer groups of the pipeline, one per shard; `*` and `?` stand for anything."""
    topics: tuple[str, ...] = ("*",)
    """Topics to check; what these groups commit for others is counted and left alone."""
    clusters: tuple[KafkaCluster, ...] = Field(min_length=1, max_length=16)
    """The Kafka clusters of the pipeline."""
    table_names: dict[str, str] = Field(default={}, max_length=1000)
    """Names of tables by their id in the schema history, for messages: `{"1": db.clicks}`."""
    stalled_after: Duration = Field(default=300, ge=0.001, le=30 * DAY)
    """How long a stream may stall while its log holds more, and a block in flight or a lagging table without moving."""
    log_interval: Duration = Field(default=3, ge=0.001, le=60)
    """How often the ends of the streams' logs are asked for."""
    skew_window: Duration = Field(default=5, ge=0, le=3600)
    """How far apart the clocks of brokers may be; orders the timeline, no verdict depends on it."""
    hole_check: int = Field(default=1_000_000, ge=0, le=1_000_000_000)
    """How many offsets are read at most, per look and cluster, to verify the holes that owners have counted; a longer
    range counts as `unchecked`. 0: none are read."""
    lost_after: Duration = Field(default=60, ge=0.001, le=DAY)
    """A cluster that has not answered for this long is out of sight: the verdict is `unknown`."""
    anomaly_retention: Duration = Field(default=7 * DAY, ge=0.001, le=366 * DAY)
    """How long an anomaly counts in the verdict."""
    max_anomalies: int = Field(default=1000, ge=1, le=1_000_000)
    """How many anomalies are kept; older ones are only counted."""
    checkpoint: Checkpoint = Checkpoint()
    """Where it remembers how far it has come."""
    kubernetes_events: KubernetesEvents | None = None
    """The object that anomalies become Kubernetes Events of."""
    admin: Admin = Admin()
    """Its HTTP API."""
    log_format: Literal["json", "console"] = "json"
    """Form of the log."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is logged."""

    @property
    def checkpoint_topic(self) -> str:
        return self.checkpoint.topic or f"blockhouse-verifier.{self.pipeline}"

    @model_validator(mode="after")
    def _distinct(self) -> VerifierConfig:
        names = [cluster.name for cluster in self.clusters]
        if len(set(names)) != len(names):
            raise ValueError(f"names of Kafka clusters must differ: {', '.join(names)}")
        return self
