"""What the operator reports of a pipeline (small: counts and the ten worst shards) and of a shard (every replica).

Lag is not here: it changes all the time, and every change of a status is a write. It is in the metrics.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from blockhouse_operator.api.base import ListMap, Part
from blockhouse_operator.api.conditions import Condition

Count = Annotated[int, Field(ge=0)]
Message = Annotated[str, Field(max_length=2048)]
Name = Annotated[str, Field(max_length=253)]
WORST_SHARDS = 10

Conditions = Annotated[tuple[Condition, ...], Field(max_length=32), ListMap("type")]


class ReadyCount(Part):
    """How many are ready of how many."""

    desired: Count = 0
    """How many there should be."""
    ready: Count = 0
    """How many are ready."""
    updated: Count = 0
    """How many run the newest revision."""


class StreamCount(Part):
    """Streams: (Kafka cluster, topic, partition)."""

    expected: Count = 0
    """How many there are."""
    owned: Count = 0
    """How many are owned by a replica."""
    replaying: Count = 0
    """How many still send again what a former owner left."""
    stopped: Count = 0
    """How many wait for a decision."""


class ShardSummary(Part):
    """A shard that is not well."""

    shard: Count
    """Its number."""
    reason: Name = ""
    """Why, in one word."""
    message: Message = ""
    """Why, shortened; the shard's own status has it in full."""


class VerifierStatus(Part):
    """What the verifier reports."""

    verdict: Literal["clean", "anomalies", "unknown"] = "unknown"
    """Its verdict."""
    anomalies: Count = 0
    """How many anomalies it has found."""
    streams: Count = 0
    """How many streams it has seen."""
    since: Annotated[str, Field(max_length=64)] = ""
    """Since when it has watched."""


class SecretHash(Part):
    """What a Secret, or the ConfigMap of `settingsFrom`, contains."""

    name: Name
    """The object."""
    hash: Annotated[str, Field(max_length=12)]
    """Keyed hash of the keys that pods read: another one is another content."""


class BlockAggregatorStatus(Part):
    """State of a pipeline."""

    observed_generation: Count = 0
    """The generation of the spec that this status is about."""
    conditions: Conditions = ()
    """Conditions."""
    shards: ReadyCount = ReadyCount()
    """Shards."""
    replicas: ReadyCount = ReadyCount()
    """Replicas of all shards, in the zones that this operator serves."""
    streams: StreamCount = StreamCount()
    """Streams of all shards."""
    worst_shards: Annotated[tuple[ShardSummary, ...], Field(max_length=WORST_SHARDS)] = ()
    """The ten worst shards."""
    verifier: VerifierStatus | None = None
    """What the verifier reports."""
    secrets: Annotated[tuple[SecretHash, ...], Field(max_length=128)] = ()
    """What pods read from Secrets now."""


class ReplicaStatus(Part):
    """State of one replica."""

    name: Name
    """The replica."""
    zone: Name = ""
    """Its zone."""
    served: bool = True
    """Whether this operator serves its zone."""
    state: Name = ""
    """What it does: Missing, Pending, Starting, Replaying, Consuming, Stopped, Draining, Unreachable, Suspended."""
    ready: bool = False
    """Whether its pod is ready, that is, ClickHouse answers."""
    streams: Count = 0
    """Streams it owns."""
    restarts: Count = 0
    """Restarts of its containers."""
    revision: Name = ""
    """Hash of the spec that its pod was created from."""
    message: Message = ""
    """What is wrong with it."""


class TopicStatus(Part):
    """State of the shard's topic in one Kafka cluster."""

    cluster: Name
    """The Kafka cluster."""
    partitions: Count = 0
    """Partitions found."""
    state: Name = ""
    """AsSpecified, or the reason why not."""
    message: Message = ""
    """What is wrong with it."""


class TableStatus(Part):
    """State of one table."""

    name: Name
    """`database.table`."""
    revision: Count = 0
    """Schema revision that messages may use."""
    state: Name = ""
    """AsSpecified, or the reason why not."""
    message: Message = ""
    """What is wrong with it."""
    held_since: Annotated[str, Field(max_length=64)] = ""
    """Since when a rollout holds it: its messages wait in Kafka."""


RESTART, AGGREGATOR_RESTART = "Restart", "RestartAggregator"


class RolloutStatus(Part):
    """The step of a rollout that is in progress."""

    replica: Name = ""
    """The replica it is about."""
    step: Name = ""
    """What is being done: Restart (the pod is replaced) or RestartAggregator."""
    since: Annotated[str, Field(max_length=64)] = ""
    """Since when."""


class RestartStatus(Part):
    """The last demands to restart all replicas that were heard."""

    pipeline: Annotated[str, Field(max_length=256)] = ""
    """That of the pipeline's annotation."""
    shard: Annotated[str, Field(max_length=256)] = ""
    """That of the shard's own annotation."""
    pods: Annotated[tuple[Name, ...], Field(max_length=256)] = ()
    """UIDs of the pods that were there when the last of them was heard: these are restarted."""


class RebuildStatus(Part):
    """A replica that is being cloned from others."""

    replica: Name = ""
    """The replica."""
    claim: Name = ""
    """UID of the volume claim that is replaced; empty when only its registration in ZooKeeper is."""
    since: Annotated[str, Field(max_length=64)] = ""
    """Since when."""


class ClickHouseShardIngestStatus(Part):
    """State of a shard."""

    observed_generation: Count = 0
    """The generation of the spec that this status is about."""
    conditions: Conditions = ()
    """Conditions."""
    revision: Name = ""
    """Hash of the present spec: that of every pod that is up to date."""
    ready_replicas: Count = 0
    """Replicas that consume."""
    updated_replicas: Count = 0
    """Replicas whose pod was created from the present spec."""
    streams: StreamCount = StreamCount()
    """Its streams."""
    replicas: Annotated[tuple[ReplicaStatus, ...], Field(max_length=256), ListMap()] = ()
    """Every replica."""
    topics: Annotated[tuple[TopicStatus, ...], Field(max_length=16), ListMap("cluster")] = ()
    """Its topic in every Kafka cluster."""
    tables: Annotated[tuple[TableStatus, ...], Field(max_length=500), ListMap()] = ()
    """Its tables."""
    rollout: RolloutStatus | None = None
    """The rollout in progress."""
    restart: RestartStatus | None = None
    """The last demand to restart all replicas."""
    rebuild: RebuildStatus | None = None
    """The rebuild in progress."""
