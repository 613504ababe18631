"""Settings of the verifier: the documented YAML file, validated at once. See `docs/verifier.md`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from blockhouse.config.base import Settings
from blockhouse.config.endpoints import NAME, KafkaCluster
from blockhouse.config.pipeline import Admin, Duration


class Checkpoint(Settings):
    """Where the verifier remembers how far it has come: a compacted topic in each cluster, about that cluster only."""

    enabled: bool = True
    topic: str | None = Field(default=None, min_length=1, max_length=249)
    interval: Duration = Field(default=10, ge=1)
    replication_factor: int = Field(default=-1, ge=-1, description="-1: as the brokers' default says")


class KubernetesEvents(Settings):
    """The object that an anomaly's Kubernetes Event is about; the verifier must run in its cluster."""

    namespace: str = Field(min_length=1)
    name: str = Field(min_length=1)
    kind: str = "BlockAggregator"
    api_version: str = "ingest.blockhouse.dev/v1alpha1"


class VerifierConfig(Settings):
    """Everything one verifier needs to know. It watches the consumer groups of one pipeline in all its Kafka clusters.

    `groups` are names, or patterns with `*` and `?`; `topics` likewise. `stalled_after` is how long a stream may stand
    still while its log grows, and a block or a lagging table without moving. `skew_window` orders the timeline only.
    """

    pipeline: str = Field(pattern=NAME)
    groups: tuple[str, ...] = Field(min_length=1)
    topics: tuple[str, ...] = ("*",)
    clusters: tuple[KafkaCluster, ...] = Field(min_length=1, max_length=16)
    table_names: dict[str, str] = {}
    stalled_after: Duration = Field(default=300, gt=0)
    log_interval: Duration = Field(default=3, gt=0, le=60)
    skew_window: Duration = Field(default=5, ge=0)
    lost_after: Duration = Field(default=60, gt=0)
    anomaly_retention: Duration = Field(default=7 * 24 * 3600, gt=0)
    max_anomalies: int = Field(default=1000, ge=1)
    checkpoint: Checkpoint = Checkpoint()
    kubernetes_events: KubernetesEvents | None = None
    admin: Admin = Admin()
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def checkpoint_topic(self) -> str:
        return self.checkpoint.topic or f"blockhouse-verifier.{self.pipeline}"

    @model_validator(mode="after")
    def _distinct(self) -> VerifierConfig:
        names = [cluster.name for cluster in self.clusters]
        if len(set(names)) != len(names):
            raise ValueError(f"names of Kafka clusters must differ: {', '.join(names)}")
        return self
