"""The Kafka part of the resources: independent clusters, a topic per shard in each of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from blockhouse.config import pipeline as settings
from blockhouse.config.endpoints import SERVERS, host_and_port
from blockhouse_operator.api.base import IMMUTABLE, Label, LabelMap, ListMap, Part, Rule
from blockhouse_operator.api.declared import declares
from blockhouse_operator.api.references import PasswordSecretRef, Tls

SHARD = "{shard}"
TEMPLATE = r"^[A-Za-z0-9._-]*\{shard\}[A-Za-z0-9._-]*$"
TOPIC = r"^[A-Za-z0-9._-]+$"

ShardTemplate = Annotated[str, Field(pattern=TEMPLATE, max_length=200)]
"""A name with `{shard}` in it, which becomes the shard's number."""


class Sasl(Part):
    """SASL login. A new password in the Secret needs no change here."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    """SASL mechanism."""
    username: Annotated[str, Field(min_length=1, max_length=256)]
    """User."""
    secret_ref: PasswordSecretRef
    """Where the password is."""


class KafkaServers(Part):
    """How a Kafka cluster is reached."""

    name: Label
    """Its name."""
    bootstrap_servers: Annotated[
        str,
        Field(min_length=1, max_length=1024),
        AfterValidator(host_and_port),
        Rule(f"self.matches(r'{SERVERS}')", "give host:port[,host:port...] without a scheme"),
    ]
    """`host:port[,host:port...]`."""
    tls: Tls | None = None
    """TLS; an empty object turns it on."""
    sasl: Sasl | None = None
    """SASL login."""


class KafkaCluster(KafkaServers):
    """One independent Kafka cluster: no mirror of another one."""

    name: Label
    """Part of tokens and of every row's provenance. Can never be changed."""
    zone: Annotated[str, Field(max_length=16)] | None = None
    """The zone it stands in, for status and placement only; every replica consumes every cluster."""
    retired: bool = False
    """No longer consumed nor provisioned; only a retired cluster may be taken out of the list."""


def at_least_one_in_use(clusters: tuple[KafkaCluster, ...]) -> tuple[KafkaCluster, ...]:
    """The clusters, if one is in use. Raises ValueError."""
    if all(cluster.retired for cluster in clusters):
        raise ValueError("at least one Kafka cluster must not be retired")
    return clusters


KafkaClusters = Annotated[
    tuple[KafkaCluster, ...],
    Field(min_length=1, max_length=16),
    ListMap(),
    Rule("self.exists(c, !c.retired)", "at least one Kafka cluster must not be retired"),
    Rule(
        "oldSelf.all(o, o.retired || self.exists(n, n.name == o.name))",
        "a Kafka cluster can be neither renamed nor removed before it is retired",
    ),
]


class TopicSettings(Part):
    """How a shard's topic has to be, in every Kafka cluster."""

    partitions: Annotated[int, Field(ge=1, le=1000)]
    """Partitions; a multiple of the shard's replicas spreads the load evenly. They are added and never removed; a
    larger number can be taken back until they were added."""
    replication_factor: Annotated[int, Field(ge=1, le=16)] = 3
    """Copies of each partition."""
    placement: Literal["RackAware", "Broker"] = "RackAware"
    """Who places new partitions: Blockhouse over racks, or the brokers themselves."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """What happens to the topics when the pipeline is deleted."""
    config: LabelMap = {}
    """Topic settings that are kept as given, such as `retention.ms`. Compaction is refused."""

    @model_validator(mode="after")
    def _no_compaction(self) -> TopicSettings:
        if "compact" in self.config.get("cleanup.policy", ""):
            raise ValueError("a compacted topic cannot be loaded exactly once: leave cleanup.policy at delete")
        return self


class TopicTemplate(TopicSettings):
    """The topic of every shard."""

    rules = (
        Rule(
            "!has(self.config) || !('cleanup.policy' in self.config) || "
            "!self.config['cleanup.policy'].contains('compact')",
            "a compacted topic cannot be loaded exactly once: leave cleanup.policy at delete",
        ),
    )

    name_template: Annotated[ShardTemplate, IMMUTABLE]
    """Name, with `{shard}` for the shard's number: `events-{shard}`. Cannot be changed."""


@declares(settings.Kafka, "session_timeout", "heartbeat_interval", "commit_timeout", "weak_offsets_topic")
class GroupSettings(Part):
    """How the consumer groups behave."""

    offset_metadata_max_bytes: Annotated[int, Field(ge=1024, le=1 << 20)] = 4096
    """The brokers' `offset.metadata.max.bytes`. Raise both for more than about 140 tables in a topic."""


class KafkaSpec(GroupSettings):
    """Where messages come from."""

    group_template: Annotated[ShardTemplate, IMMUTABLE]
    """Consumer group of a shard, with `{shard}`. Cannot be changed: what was loaded is known under this name."""
    topic: TopicTemplate
    """The topic of every shard."""
    dead_letter_template: ShardTemplate | None = None
    """Topic of a shard's dead letters, with `{shard}`; default: the shard's topic with `.dead-letters`."""
    clusters: KafkaClusters
    """The Kafka clusters; all are consumed."""

    @model_validator(mode="after")
    def _usable(self) -> KafkaSpec:
        at_least_one_in_use(self.clusters)
        return self


class ShardTopic(TopicSettings):
    """The topic of one shard."""

    name: Annotated[str, Field(pattern=TOPIC, max_length=249)]
    """Name of the topic, the same in every cluster."""


@declares(settings.Kafka, "dead_letter_topic")
class ShardKafka(GroupSettings):
    """Where the messages of one shard come from."""

    group: Annotated[str, Field(pattern=TOPIC, max_length=249)]
    """Consumer group of the shard."""
    topic: ShardTopic
    """The shard's topic."""
    clusters: KafkaClusters
    """The Kafka clusters."""

    @model_validator(mode="after")
    def _usable(self) -> ShardKafka:
        at_least_one_in_use(self.clusters)
        return self
