"""BlockAggregator: one pipeline, as its users write it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from blockhouse_operator.api.base import ListMap, Part, Rule
from blockhouse_operator.api.clickhouse import ClickHouseSpec
from blockhouse_operator.api.kafka import KafkaSpec
from blockhouse_operator.api.parts import (
    MAX_SHARDS,
    AggregatorSpec,
    Blocks,
    PodSecurity,
    Table,
    VerifierSpec,
    Zone,
    ZooKeeperSpec,
)
from blockhouse_operator.api.references import AdminTls, LocalRef
from blockhouse_operator.api.rollout import Rollout
from blockhouse_operator.api.template import Template

Zones = Annotated[tuple[Zone, ...], Field(min_length=1, max_length=16), ListMap()]
Tables = Annotated[tuple[Table, ...], Field(max_length=500), ListMap()]
PullSecrets = Annotated[tuple[LocalRef, ...], Field(max_length=16), ListMap()]


class NetworkPolicySpec(Part):
    """A NetworkPolicy per shard: queries from anywhere, replication from the pipeline only, the admin API from pods."""

    enabled: bool = True
    """Whether there is one."""


class BlockAggregatorSpec(Part):
    """Kafka topics into the shards of a ClickHouse cluster, every row exactly once."""

    rules = (
        Rule(
            "self.zones.map(z, z.replicas).sum() >= self.quorum",
            "quorum must not be above the number of replicas of a shard",
        ),
        Rule(
            "self.zookeeper.ensembles.map(e, [e.shards.to + 1, self.shards].min() - e.shards.from)"
            ".map(n, n > 0 ? n : 0).sum() == self.shards",
            "every shard must be served by a ZooKeeper ensemble",
        ),
        Rule(
            "self.shards >= oldSelf.shards || self.shardRemovalPolicy == 'Drain'",
            "shards are removed only with shardRemovalPolicy: Drain",
        ),
        Rule(
            "has(self.zookeeper.root) == has(oldSelf.zookeeper.root)",
            "zookeeper.root can be neither added nor removed",
        ),
    )

    shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)]
    """Shards, numbered from 0. May grow; shrinking needs `shardRemovalPolicy: Drain`."""
    shard_removal_policy: Literal["Forbid", "Drain"] = "Forbid"
    """`Drain`: the shards of the highest numbers may be removed, once every message of their topics is stored."""
    zones: Zones
    """Failure domains, and how many replicas of every shard stand in each."""
    quorum: Annotated[int, Field(ge=1, le=16)] = 2
    """Replicas that must have a block before it counts as stored."""
    kafka: KafkaSpec
    """Where messages come from."""
    clickhouse: ClickHouseSpec
    """Where rows go."""
    zookeeper: ZooKeeperSpec
    """ZooKeeper ensembles and the shards they serve."""
    tables: Tables = ()
    """Tables to load."""
    blocks: Blocks = Blocks()
    """Limits of blocks."""
    aggregator: AggregatorSpec
    """The aggregator beside each replica."""
    verifier: VerifierSpec = VerifierSpec()
    """The verifier."""
    rollout: Rollout = Rollout()
    """How changes reach the pods."""
    security: PodSecurity = PodSecurity()
    """Who the containers run as."""
    image_pull_secrets: PullSecrets = ()
    """Secrets for pulling images."""
    network_policy: NetworkPolicySpec = NetworkPolicySpec()
    """NetworkPolicy of the shards."""
    admin_tls: AdminTls | None = None
    """TLS of the admin APIs and the verifier's, for the hosts of the replicas' Services and of the verifier's
    (`*.NAMESPACE.svc`). Needs images of the operator's version; pods restart for it."""
    template: Template = Template()
    """What pods, Services, ServiceAccounts and volume claims have besides."""
    paused: bool = False
    """Write nothing of the pipeline but its status: no object, topic, table or right in ZooKeeper is created, changed
    or removed, and no pod restarted. Aggregators load on, a deleted pipeline goes as always, and what was changed
    meanwhile is carried out when set to false."""
    suspend: bool = False
    """Load nothing, within about a minute and without a restart; ClickHouse still answers queries. Kafka keeps the
    messages: mind its retention."""
    stop: bool = False
    """Have no pods of replicas: loading is suspended first, then they end. Volumes, topics and Services stay, and all
    continues where it was when set to false. Kafka keeps the messages: mind its retention."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        replicas = sum(zone.replicas for zone in self.zones)
        if replicas < self.quorum:
            raise ValueError(f"quorum: {self.quorum} is above the {replicas} replicas of a shard")
        orphans = [str(shard) for shard in range(self.shards) if self.zookeeper.of(shard) is None]
        if orphans:
            raise ValueError(f"zookeeper.ensembles: no ensemble serves shard {', '.join(orphans[:10])}")
        return self
