"""ClickHouseShardIngest: one shard of a pipeline, resolved: every name is spelt out and nothing is left to look up."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from blockhouse_operator.api import names
from blockhouse_operator.api.base import IMMUTABLE, ListMap, Part
from blockhouse_operator.api.clickhouse import ClickHouseSpec
from blockhouse_operator.api.clickhouse_files import FILES, MountedFile
from blockhouse_operator.api.kafka import ShardKafka
from blockhouse_operator.api.parts import (
    MAX_SHARDS,
    AggregatorSpec,
    Blocks,
    Ensemble,
    PodSecurity,
    Zone,
    ZooKeeperSession,
)
from blockhouse_operator.api.pipeline import NetworkPolicySpec, PullSecrets, Tables, Zones
from blockhouse_operator.api.references import AdminTls
from blockhouse_operator.api.rollout import ShardRollout
from blockhouse_operator.api.template import ShardTemplate


class Replica(Part):
    """One replica of the shard."""

    name: Annotated[str, Field(max_length=63)]
    """Its StatefulSet, Service, ClickHouse macro and static member id."""
    zone: Annotated[str, Field(max_length=16)]
    """Its zone."""
    index: Annotated[int, Field(ge=0)]
    """Its number in the zone."""
    host: Annotated[str, Field(max_length=253)]
    """How other replicas reach it."""
    clickhouse_host: Annotated[str, Field(max_length=253)]
    """Where its aggregator inserts: its own pod, or the host of a ClickHouse that the operator does not deploy."""


class ShardEnsemble(ZooKeeperSession, Ensemble):
    """The shard's ZooKeeper."""

    root: Annotated[str, Field(max_length=128), IMMUTABLE]
    """Subtree of the pipeline."""


class ClickHouseShardIngestSpec(Part):
    """Written by the operator from a BlockAggregator; changes made by hand are undone."""

    pipeline: Annotated[str, Field(pattern=names.PIPELINE, max_length=28), IMMUTABLE]
    """The BlockAggregator it belongs to."""
    shard: Annotated[int, Field(ge=0, le=MAX_SHARDS - 1), IMMUTABLE]
    """Number of the shard."""
    replicas: Annotated[tuple[Replica, ...], Field(min_length=1, max_length=256), ListMap()]
    """All replicas of the shard, in all zones."""
    zones: Zones
    """The zones, for placing pods."""
    quorum: Annotated[int, Field(ge=1, le=16)]
    """Replicas that must have a block before it counts as stored."""
    kafka: ShardKafka
    """Where its messages come from."""
    clickhouse: ClickHouseSpec
    """Where its rows go."""
    config_files: Annotated[tuple[MountedFile, ...], Field(max_length=FILES), ListMap()] = ()
    """Further files of its ClickHouse servers, as the pipeline's Secret has them."""
    user_files: bool = False
    """Whether its servers read further files of users."""
    secrets_hash: Annotated[str, Field(max_length=12)] = ""
    """What its pods read from Secrets, where another content restarts them."""
    zookeeper: ShardEnsemble
    """Its ZooKeeper."""
    tables: Tables = ()
    """Tables to load."""
    blocks: Blocks = Blocks()
    """Limits of blocks."""
    aggregator: AggregatorSpec
    """The aggregator beside each replica."""
    rollout: ShardRollout = ShardRollout()
    """How changes reach the pods."""
    security: PodSecurity = PodSecurity()
    """Who the containers run as."""
    image_pull_secrets: PullSecrets = ()
    """Secrets for pulling images."""
    network_policy: NetworkPolicySpec = NetworkPolicySpec()
    """NetworkPolicy of the shard."""
    admin_tls: AdminTls | None = None
    """TLS of the aggregators' admin APIs."""
    template: ShardTemplate = ShardTemplate()
    """What pods, Services and volume claims have besides."""
    suspend: bool = False
    """Load nothing."""
    stop: bool = False
    """Have no pods."""

    @model_validator(mode="after")
    def _known_zones(self) -> Self:
        unknown = {replica.zone for replica in self.replicas} - {zone.name for zone in self.zones}
        if unknown:
            raise ValueError(f"replicas: zone {', '.join(sorted(unknown))} is not among zones")
        return self

    def replica_names(self) -> frozenset[str]:
        """Names of all replicas."""
        return frozenset(replica.name for replica in self.replicas)

    def zone(self, name: str) -> Zone:
        """A zone by name; every replica's zone is there."""
        return next(zone for zone in self.zones if zone.name == name)
