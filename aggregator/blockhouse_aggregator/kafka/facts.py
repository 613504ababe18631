"""What the brokers of one cluster know about topics, offsets and their own durability. Asks, never changes anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined] # re-exported, undeclared

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.kafka_errors import LoginRefusal, translate
from blockhouse.kafka_login import Certificates, Login
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.connecting import admin_client

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
NO_SUCH_OFFSET = -1
"""What brokers answer when no message is as young as asked for. Below it the client itself has answered, without an
error, for a broker that is gone; it asks that one again for as long as it lives, although another one leads."""
CLIENT_ENDING = frozenset({KafkaError.FENCED_LEADER_EPOCH, KafkaError._TIMED_OUT})
"""Errors after which another client asks. One keeps the epoch of a leader that has been restarted; and while a broker
is gone, one of librdkafka 2.16 that began a request to it may answer nothing more and take a core."""
OFFSETS_TOPIC = "__consumer_offsets"
# The client prints topic ids in plain base64; everything else in Kafka writes them URL-safe.
_URL_SAFE = str.maketrans("+/", "-_")


class Bounds(NamedTuple):
    """A stream holds [begin, end); `end` is the last stable offset, below every open transaction. `leader_epoch` is the
    present leader's, -1 when the broker does not report."""

    begin: int
    end: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """`topic_id` is empty when the brokers give topics none. `leaders[p]` is the broker id of partition p's leader,
    None while it has none. `retention_ms` is None when retention never deletes.
    """

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
        self._cluster = cluster
        self._name = cluster.name
        self._timeout = timeout
        self._login, self._refusal = Login(cluster), LoginRefusal()
        self._admin = self._connect()

    def _connect(self) -> AdminClient:
        self._certificates = Certificates(self._cluster)
        return admin_client(self._cluster, {"client.id": "blockhouse-facts", "error_cb": self._refusal.note})

    def topic(self, topic: str) -> TopicFacts:
        """Identity, shape and retention. Permanent `UnknownTopic` when there is no such topic."""
        description = self._describe(topic)
        config = self._config(ConfigResource(ConfigResource.Type.TOPIC, topic))
        retention = int(config["retention.ms"])
        return TopicFacts(
            topic_id=_identity(description),
            partitions=len(description.partitions),
            replication_factor=_replication(description),
            cleanup_policy=config["cleanup.policy"],
            retention_ms=None if retention < 0 else retention,
            max_message_bytes=int(config["max.message.bytes"]),
            leaders=tuple(p.leader.id if p.leader else None for p in description.partitions),
        )

    def partitions(self, topic: str) -> int:
        """How many it has, which costs one request. Raises as `topic`."""
        return len(self._describe(topic).partitions)

    def topic_id(self, topic: str) -> str:
        """Its identity alone, which costs one request; empty when the brokers give topics none. Raises as `topic`."""
        return _identity(self._describe(topic))

    def unwritable(self, topic: str) -> str:
        """Which partitions take no message of a producer that waits for all replicas, and why; empty when each does.
        Raises as `topic`."""
        partitions = self._describe(topic).partitions
        config = self._config(ConfigResource(ConfigResource.Type.TOPIC, topic))
        least = int(config["min.insync.replicas"])
        found = []
        for partition in partitions:
            if partition.leader is None:
                found.append(f"{topic}/{partition.id} has no leader")
            elif len(partition.isr) < min(least, len(partition.replicas)):
                found.append(f"{topic}/{partition.id} has {len(partition.isr)} in-sync replicas of {least} it needs")
        return ", ".join(found[:5])

    def bounds(self, stream: StreamId) -> Bounds:
        """First offset still there and last stable offset."""
        begin = self._list_offsets(stream, _EARLIEST).offset
        latest = self._list_offsets(stream, _LATEST)
        return Bounds(begin, latest.offset, -1 if latest.leader_epoch is None else latest.leader_epoch)

    def offset_at(self, stream: StreamId, timestamp_ms: int) -> int:
        """The first offset with a timestamp at or after `timestamp_ms`; the end of the stream when there is none."""
        found = self._list_offsets(stream, OffsetSpec.for_timestamp(timestamp_ms)).offset
        return int(found) if found >= 0 else self.bounds(stream).end

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

    def cluster_id(self) -> str:
        """The cluster's identity, which is the same whatever its servers are called. Raises Retryable or Permanent."""
        timeout = self._timeout
        found = self._ask(lambda admin: admin.describe_cluster(request_timeout=timeout), "describing the cluster")
        return str(found.cluster_id)

    def _describe(self, topic: str) -> Any:
        topics, timeout = TopicCollection([topic]), self._timeout
        return self._ask(
            lambda admin: admin.describe_topics(topics, request_timeout=timeout)[topic], f"describing topic {topic}"
        )

    def _config(self, resource: ConfigResource) -> Mapping[str, str]:
        timeout = self._timeout
        entries = self._ask(
            lambda admin: admin.describe_configs([resource], request_timeout=timeout)[resource],
            f"reading the configuration of {resource.name}",
        )
        return {name: entry.value for name, entry in entries.items()}

    def _list_offsets(self, stream: StreamId, spec: OffsetSpec) -> Any:
        partition = TopicPartition(stream.topic, stream.partition)
        level, timeout = IsolationLevel.READ_COMMITTED, self._timeout
        try:
            found = self._ask(
                lambda admin: admin.list_offsets({partition: spec}, isolation_level=level, request_timeout=timeout)[
                    partition
                ],
                f"reading the bounds of stream {stream}",
            )
            if found.offset >= NO_SUCH_OFFSET:
                return found
            self._admin = self._connect()
            text = f"Kafka: the broker that led stream {stream} in cluster {self._name} does not answer"
            raise Retryable(text, after=1.0)
        except Retryable as error:
            # "No leader" is answered for a partition between two leaders and of one that was never there.
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

    def _ask(self, request: Callable[[AdminClient], Future[Any]], doing: str) -> Any:
        admin, doing = self._admin, f"{doing} in cluster {self._name}"
        self._login.refresh(admin)
        try:
            answer = request(admin).result(self._timeout + 1)
            admin.poll(0)  # in which it reports what was before this
            self._refusal.over()
            return answer
        except KafkaException as error:
            admin.poll(0)  # in which it reports that its login is refused
            if error.args[0].code() in CLIENT_ENDING or self._certificates.replaced():
                self._admin = self._connect()
            raise translate(self._refusal.behind(error), doing) from error
        except FutureTimeoutError as error:
            self._admin = self._connect()
            raise Retryable(f"Kafka: {doing} took longer than {self._timeout:g} s", after=1.0) from error


def _identity(description: Any) -> str:
    """An id of zeros is what brokers without topic ids (before 2.8) give every topic: it identifies none."""
    text = str(description.topic_id).translate(_URL_SAFE)
    return "" if not text.strip("A=") else text


def _replication(description: Any) -> int:
    """The weakest partition counts."""
    return min(len(partition.replicas) for partition in description.partitions)
