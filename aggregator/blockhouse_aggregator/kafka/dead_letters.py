"""Keeps messages that could not be loaded: with their content, where they came from and why, in a topic of their own.

Delivery is at least once: readers deduplicate by the record's key. Must never return before every message is
acknowledged, because the caller commits past them; and must never stop a stream because a letter is too large: what the
topic refuses is written without its value, which Kafka still has where the message came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined] # re-exported, undeclared

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse.kafka_errors import translate
from blockhouse.kafka_login import Login
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.connecting import admin_client
from blockhouse_aggregator.kafka.facts import ClusterFacts

REPLAYED = "blockhouse.replayed"
"""Header of a mark, the record with a letter's key that is written when the message is sent again: its new place."""
Header = tuple[str, str | bytes | None]
Delivered = Callable[[KafkaError | None, Message], None]
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

# What our headers and the longer key add to a message that was as large as its own topic allows.
_OVERHEAD_BYTES = 64 << 10
MOST_DETAIL = 500
"""Characters of a letter's detail: decoders may have much to report."""
_FLUSH_MARGIN = 2.0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message as it was, and why it was not loaded. `table` is empty when not known; `timestamp_ms` is Kafka's.
    `topic_id` is that of the topic it was read from (empty: not known); `omitted` names what the dead-letter topic had
    no room for, with its size in bytes, such as `value 3200000`; `detail` names the column, row and value that were
    refused."""

    stream: StreamId
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp_ms: int
    reason: str
    table: str = ""
    omitted: str = ""
    topic_id: str = ""
    detail: str = ""

    @property
    def record_key(self) -> str:
        """`cluster/topic/partition/offset@topic-id`: equal for every copy of a message, and different from any other's,
        though a topic that is created again has the same offsets."""
        return f"{self.stream}/{self.offset}" + (f"@{self.topic_id}" if self.topic_id else "")

    def record_headers(self) -> list[Header]:
        """The message's own headers first, then ours; its own key is among them, as the record has another."""
        # Older readers know no detail: before the others, they take it for one of the message's own headers.
        ours: list[Header] = [
            ("blockhouse.detail", self.detail[:MOST_DETAIL].encode()),
            ("blockhouse.stream", str(self.stream).encode()),
            ("blockhouse.offset", str(self.offset).encode()),
            ("blockhouse.reason", self.reason.encode()),
            ("blockhouse.table", self.table.encode()),
            ("blockhouse.timestamp", str(self.timestamp_ms).encode()),
        ]
        if self.topic_id:
            ours.append(("blockhouse.topicId", self.topic_id.encode()))
        if self.omitted:
            ours.append(("blockhouse.omitted", self.omitted.encode()))
        if self.key is not None:
            ours.append(("blockhouse.key", self.key))
        return [*self.headers, *ours]

    def smaller(self) -> DeadLetter | None:
        """The letter without its value, then also without key and headers of its own; None when nothing is left."""
        if self.value:
            return replace(self, value=None, omitted=f"value {len(self.value)}")
        if self.key or self.headers:
            size = len(self.key or b"") + sum(len(name) + len(value or b"") for name, value in self.headers)
            return replace(self, key=None, headers=(), omitted=f"{self.omitted} key and headers {size}".strip())
        return None


class DeadLetterWriter:
    """Writes to `topic` of the cluster the messages came from. Not thread-safe. `timeout` in seconds, per write."""

    def __init__(self, cluster: KafkaCluster, topic: str, *, timeout: float = 20.0) -> None:
        self._cluster = cluster
        self._topic = topic
        self._timeout = timeout
        self._producer = self._connect()
        self._login = Login(cluster)

    def _connect(self) -> Producer:
        config: dict[str, str | int | float | bool] = {
            **self._cluster.client_config(),
            "client.id": "blockhouse-dead-letters",
            "acks": "all",
            "enable.idempotence": True,
            "delivery.timeout.ms": int(self._timeout * 1000),
            "request.timeout.ms": min(5_000, int(self._timeout * 1000)),
            "message.max.bytes": 1_000_000_000,  # the topic's own limit decides
            # As large as the source allows may mean compressed: uncompressed it would not fit into a like topic.
            "compression.type": "zstd",
            "linger.ms": 0,
            "log_level": 0,
        }
        try:
            return Producer(config)
        except KafkaException as error:  # a certificate that is not where it was
            raise translate(error, f"connecting a producer of dead letters to cluster {self._cluster.name}") from error

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Returns when the brokers have all of `letters`. Raises Retryable, or Permanent (not authorized, no such
        topic, no room even for a letter without its message); some may then be written already, and are written again
        by the next try."""
        refused = self._send(letters)
        if len(letters) > 1:
            # A batch may be too large though none of its letters is.
            refused = [letter for one in refused for letter in self._send([one])]
        for letter in refused:
            self._send_smaller(letter)

    def _send_smaller(self, letter: DeadLetter) -> None:
        smaller = letter.smaller()
        while smaller is not None and self._send([smaller]):
            smaller = smaller.smaller()
        if smaller is None:
            raise Permanent(
                f"Kafka: {self._topic} in cluster {self._cluster.name} refuses the dead letter of {letter.record_key}"
                " even without the message: raise max.message.bytes of the topic",
                reason="MessageTooLarge",
            )

    def _send(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Write letters; returns those that the topic refused for their size."""
        self._login.refresh(self._producer)
        failures: list[KafkaError] = []
        refused: list[DeadLetter] = []

        def delivered(letter: DeadLetter, error: KafkaError | None, _: Message) -> None:
            if error is not None and error.code() in _TOO_LARGE:
                refused.append(letter)
            elif error is not None:
                failures.append(error)

        doing = f"writing {len(letters)} dead letters to {self._topic} in cluster {self._cluster.name}"
        try:
            for letter in letters:
                self._produce(letter, partial(delivered, letter))
        except KafkaException as error:
            self._start_again()
            raise translate(error, doing) from error
        unacknowledged = self._producer.flush(self._timeout + _FLUSH_MARGIN)
        if unacknowledged or failures or refused:
            self._start_again()
        if failures and failures[0].code() != KafkaError._MSG_TIMED_OUT:
            raise translate(failures[0], doing)
        if failures or unacknowledged:
            late = len(failures) + unacknowledged
            text = f"Kafka: {doing}: {late} not acknowledged in {self._timeout:g} s"
            raise Retryable(f"{text}{self._why_late()}", after=1.0)
        return refused

    def _why_late(self) -> str:
        """What the brokers lack to acknowledge: the client reports a time-out for whatever made it try again."""
        try:
            found = ClusterFacts(self._cluster, timeout=5.0).unwritable(self._topic)
        except BlockhouseError as error:
            return f"; the cause is not known, for asking the brokers failed: {error}"
        return f": {found}" if found else ""

    def ensure_topic(self, source: str, *, retention_ms: int = 30 * 86_400_000) -> None:
        """Create the topic unless it exists: partitions and replicas as `source` has them, room for its largest
        message. Existing topics are left alone. Raises Retryable or Permanent."""
        facts = ClusterFacts(self._cluster, timeout=self._timeout)
        try:
            facts.topic_id(self._topic)
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
        admin = admin_client(self._cluster, {})
        try:
            admin.create_topics([new], operation_timeout=self._timeout)[self._topic].result(self._timeout + 1)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another replica was quicker
                raise translate(error, f"creating topic {self._topic} in {self._cluster.name}") from error
        except FutureTimeoutError as error:
            text = f"Kafka: creating topic {self._topic} in {self._cluster.name} took longer than {self._timeout:g} s"
            raise Retryable(text, after=1.0) from error

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

    def _start_again(self) -> None:
        """Forget what is queued (the caller sends all of it again), and a producer that may have failed for good."""
        self._producer.purge()
        self._producer = self._connect()
