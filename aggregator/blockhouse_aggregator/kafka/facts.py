"""What the brokers of one cluster know about topics, offsets and their own durability. Asks, never changes anything."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined] # re-exported, undeclared

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.errors import translate

T = TypeVar("T")

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
OFFSETS_TOPIC = "__consumer_offsets"
# The client prints topic ids in plain base64; everybody else in Kafka writes them URL-safe.
_URL_SAFE = str.maketrans("+/", "-_")


class Bounds(NamedTuple):
    """A stream holds [begin, end); `end` is the last stable offset, below every open transaction."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """`leaders[p]` is the broker id of partition p's leader, None while it has none. `retention_ms` None: for ever."""

    topic_id: str
    partitions: int
    replication_factor: int
    cleanup_policy: str
    retention_ms: int | None
    max_message_bytes: int
    leaders: tuple[int | None, ...]

    @property
    def compacted(self) -> bool:
        """Messages may vanish from the middle, so that a block could not be rebuilt."""
        return "compact" in self.cleanup_policy


@dataclass(frozen=True, slots=True)
class OffsetsTopicFacts:
    """How durable an acknowledged intent is. `warning` is empty when it survives the loss of any one broker."""

    replication_factor: int
    min_insync_replicas: int
    unclean_election: bool

    @property
    def durable(self) -> bool:
        return self.replication_factor >= 2 and self.min_insync_replicas >= 2 and not self.unclean_election

    @property
    def warning(self) -> str:
        """One sentence for the log and the status; names each weak setting and what it should be."""
        weak = []
        if self.replication_factor < 2:
            weak.append(f"replication factor {self.replication_factor} (use 3)")
        if self.min_insync_replicas < 2:
            weak.append(f"min.insync.replicas {self.min_insync_replicas} (use 2)")
        if self.unclean_election:
            weak.append("unclean.leader.election.enable true (use false)")
        if not weak:
            return ""
        return (
            f"{OFFSETS_TOPIC} may lose acknowledged commits when a broker is lost, and rows could then be doubled: "
            + ", ".join(weak)
        )


class ClusterFacts:
    """Answers of one cluster. `timeout`, in seconds, bounds every call; errors are Retryable or Permanent."""

    def __init__(self, cluster: KafkaCluster, *, timeout: float = 10.0) -> None:
        self._name = cluster.name
        self._timeout = timeout
        self._refusal: KafkaError | None = None
        config: dict[str, Any] = {
            **cluster.client_config(),
            "client.id": "blockhouse-facts",
            "log_level": 0,
            "error_cb": self._note,
        }
        self._admin = AdminClient(config)

    def topic(self, topic: str) -> TopicFacts:
        """Identity, shape and retention. Permanent `UnknownTopic` when there is no such topic."""
        description = self._describe(topic)
        config = self._config(ConfigResource(ConfigResource.Type.TOPIC, topic))
        retention = int(config["retention.ms"])
        return TopicFacts(
            topic_id=str(description.topic_id).translate(_URL_SAFE),
            partitions=len(description.partitions),
            replication_factor=_replication(description),
            cleanup_policy=config["cleanup.policy"],
            retention_ms=None if retention < 0 else retention,
            max_message_bytes=int(config["max.message.bytes"]),
            leaders=tuple(p.leader.id if p.leader else None for p in description.partitions),
        )

    def bounds(self, stream: StreamId) -> Bounds:
        """First offset still there and last stable offset."""
        return Bounds(
            self._list_offsets(stream, _EARLIEST).offset,
            self._list_offsets(stream, _LATEST).offset,
        )

    def offset_at(self, stream: StreamId, timestamp_ms: int) -> int:
        """The first offset with a timestamp at or after `timestamp_ms`; the end of the stream when there is none."""
        found = self._list_offsets(stream, OffsetSpec.for_timestamp(timestamp_ms)).offset
        return int(found) if found >= 0 else self.bounds(stream).end

    def leader_epoch(self, stream: StreamId) -> int:
        """Epoch of the stream's current leader; -1 when the broker does not say."""
        epoch = self._list_offsets(stream, _LATEST).leader_epoch
        return -1 if epoch is None else epoch

    def offsets_topic(self) -> OffsetsTopicFacts:
        """The durability of commits. A cluster that never had a group has no such topic yet: then what the brokers'
        defaults will make of it."""
        try:
            replication = _replication(self._describe(OFFSETS_TOPIC))
            config = self._config(ConfigResource(ConfigResource.Type.TOPIC, OFFSETS_TOPIC))
        except Permanent as error:
            if error.reason != "UnknownTopic":
                raise
            config = self._config(ConfigResource(ConfigResource.Type.BROKER, str(self._any_broker())))
            replication = int(config["offsets.topic.replication.factor"])
        return OffsetsTopicFacts(
            replication_factor=replication,
            min_insync_replicas=int(config["min.insync.replicas"]),
            unclean_election=config["unclean.leader.election.enable"] == "true",
        )

    def _describe(self, topic: str) -> Any:
        futures = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._timeout)
        return self._wait(futures[topic], f"describing topic {topic}")

    def _config(self, resource: ConfigResource) -> Mapping[str, str]:
        futures = self._admin.describe_configs([resource], request_timeout=self._timeout)
        entries = self._wait(futures[resource], f"reading the configuration of {resource.name}")
        return {name: entry.value for name, entry in entries.items()}

    def _list_offsets(self, stream: StreamId, spec: OffsetSpec) -> Any:
        partition = TopicPartition(stream.topic, stream.partition)
        futures = self._admin.list_offsets(
            {partition: spec}, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._timeout
        )
        try:
            return self._wait(futures[partition], f"reading the bounds of stream {stream}")
        except Retryable as error:
            # "No leader" is said of a partition between two leaders and of one that was never there.
            count = len(self._describe(stream.topic).partitions) if error.code == KafkaError._NOENT else None
            if count is not None and stream.partition >= count:
                raise Permanent(
                    f"Kafka: there is no stream {stream}: topic {stream.topic} has {count} partitions in cluster "
                    f"{self._name}; add partitions, or correct the number",
                    reason="UnknownTopic",
                ) from error
            raise

    def _any_broker(self) -> int:
        try:
            return next(iter(self._admin.list_topics(timeout=self._timeout).brokers))
        except KafkaException as error:
            raise translate(error, f"listing the brokers of cluster {self._name}") from error

    def _wait(self, future: Future[T], doing: str) -> T:
        doing = f"{doing} in cluster {self._name}"
        try:
            return future.result(self._timeout + 1)
        except KafkaException as error:
            # A wrong password shows as a time-out of the call; the reason is told beside it.
            self._admin.poll(0)
            cause, self._refusal = self._refusal or error, None
            raise translate(cause, doing) from error
        except FutureTimeoutError as error:
            raise Retryable(f"Kafka: {doing} took longer than {self._timeout:g} s", after=1.0) from error

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            self._refusal = error


def _replication(description: Any) -> int:
    """The weakest partition counts."""
    return min(len(partition.replicas) for partition in description.partitions)
