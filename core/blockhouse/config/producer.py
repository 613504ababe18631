"""Settings of a producer in an application: a YAML file, validated at once. See `docs/producing.md`."""

from __future__ import annotations

from pydantic import Field, model_validator

from blockhouse.config.base import Settings
from blockhouse.config.endpoints import KafkaCluster, ZooKeeper
from blockhouse.config.units import Duration


class ProducerConfig(Settings):
    """Everything a producer needs to know."""

    topic: str = Field(min_length=1, max_length=249)
    """The topic of the shard, in every cluster."""
    local: str | None = None
    """Name of the cluster in the application's own zone, which is preferred; default: the first one."""
    clusters: tuple[KafkaCluster, ...] = Field(min_length=1, max_length=16)
    """The Kafka clusters of the pipeline."""
    zookeeper: ZooKeeper
    """Where the pipeline's schemas are: its ensemble and root."""
    delivery_timeout: Duration = Field(default=10, ge=0.1, le=3600)
    """How long one cluster may try to deliver a message, before another one does."""
    settings: dict[str, str | int | float | bool] = Field(default={}, max_length=100)
    """Further settings of librdkafka, by its own names."""

    @property
    def preferred(self) -> str:
        """The name of the local cluster."""
        return self.local or self.clusters[0].name

    @model_validator(mode="after")
    def _known(self) -> ProducerConfig:
        names = [cluster.name for cluster in self.clusters]
        if len(set(names)) != len(names):
            raise ValueError(f"names of Kafka clusters must differ: {', '.join(names)}")
        if self.preferred not in names:
            raise ValueError(f"local is {self.local}; there are clusters {', '.join(names)}")
        return self
