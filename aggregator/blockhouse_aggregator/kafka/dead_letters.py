"""Keeps messages that could not be loaded: with their content, where they came from and why, in a topic of their own.

Delivery is at least once: readers deduplicate by the record's key. Must never return before every message is
acknowledged, because the caller commits past them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # re-exported, undeclared

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.errors import translate
from blockhouse_aggregator.kafka.facts import ClusterFacts

Header = tuple[str, str | bytes | None]
Delivered = Callable[[KafkaError | None, Message], None]

# What our headers and the longer key add to a message that was as large as its own topic allows.
_OVERHEAD_BYTES = 64 << 10
_GIVE_UP_AFTER = 2.0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message as it was, and why it was not loaded. `table` is empty when not known; `timestamp_ms` is Kafka's."""

    stream: StreamId
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp_ms: int
    reason: str
    table: str = ""

    @property
    def record_key(self) -> str:
        """`cluster/topic/partition/offset`: equal for every copy of the same message."""
        return f"{self.stream}/{self.offset}"

    def record_headers(self) -> list[Header]:
        """The message's own headers first, then ours; its own key is among them, as the record has another."""
        ours: list[Header] = [
            ("blockhouse.stream", str(self.stream).encode()),
            ("blockhouse.offset", str(self.offset).encode()),
            ("blockhouse.reason", self.reason.encode()),
            ("blockhouse.table", self.table.encode()),
            ("blockhouse.timestamp", str(self.timestamp_ms).encode()),
        ]
        if self.key is not None:
            ours.append(("blockhouse.key", self.key))
        return [*self.headers, *ours]


class DeadLetterWriter:
    """Writes to `topic` of the cluster the messages came from. Not thread-safe. `timeout` in seconds, per write."""

    def __init__(self, cluster: KafkaCluster, topic: str, *, timeout: float = 20.0) -> None:
        self._cluster = cluster
        self._topic = topic
        self._timeout = timeout
        self._producer = self._connect()

    def _connect(self) -> Producer:
        return Producer(
            {
                **self._cluster.client_config(),
                "client.id": "blockhouse-dead-letters",
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": int(self._timeout * 1000),
                "request.timeout.ms": min(5_000, int(self._timeout * 1000)),
                "message.max.bytes": 1_000_000_000,  # the topic's own limit decides
                "linger.ms": 0,
                "log_level": 0,
            }
        )

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Returns when the brokers have all of `letters`. Raises Retryable, or Permanent (not authorized, no such
        topic, message too large); some may then be written already, and are written again by the next try."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        doing = f"writing {len(letters)} dead letters to {self._topic} in cluster {self._cluster.name}"
        try:
            for letter in letters:
                self._produce(letter, delivered)
        except KafkaException as error:
            self._start_anew()
            raise translate(error, doing) from error
        unacknowledged = self._producer.flush(self._timeout + _GIVE_UP_AFTER)
        if unacknowledged or failures:
            self._start_anew()
        if failures:
            raise translate(failures[0], doing)
        if unacknowledged:
            raise Retryable(f"Kafka: {doing}: {unacknowledged} not acknowledged in {self._timeout:g} s", after=1.0)

    def ensure_topic(self, source: str, *, retention_ms: int = 30 * 86_400_000) -> None:
        """Create the topic unless it exists: partitions and replicas as `source` has them, room for its largest
        message. Existing topics are left alone. Raises Retryable or Permanent."""
        facts = ClusterFacts(self._cluster, timeout=self._timeout)
        try:
            facts.topic(self._topic)
            return
        except Permanent as error:
            if error.reason != "UnknownTopic":
                raise
        like = facts.topic(source)
        new = NewTopic(
            self._topic,
            num_partitions=like.partitions,
            replication_factor=like.replication_factor,
            config={
                "cleanup.policy": "delete",
                "retention.ms": str(retention_ms),
                "max.message.bytes": str(like.max_message_bytes + _OVERHEAD_BYTES),
            },
        )
        admin = AdminClient({**self._cluster.client_config(), "log_level": 0})
        try:
            admin.create_topics([new], operation_timeout=self._timeout)[self._topic].result(self._timeout + 1)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another replica was quicker
                raise translate(error, f"creating topic {self._topic} in {self._cluster.name}") from error

    def close(self) -> None:
        """Nothing is pending between writes, so nothing is lost."""
        self._producer.purge()

    def _produce(self, letter: DeadLetter, delivered: Delivered) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    key=letter.record_key,
                    value=letter.value,
                    headers=letter.record_headers(),  # the time of writing: retention shall count from now on
                    on_delivery=delivered,
                )
                return
            except BufferError:
                self._producer.poll(0.05)  # the local queue is full: deliveries make room, or time out

    def _start_anew(self) -> None:
        """Forget what is queued (the caller sends all of it again), and a producer that may have failed for good."""
        self._producer.purge()
        self._producer = self._connect()
