"""Reads `__consumer_offsets` of one cluster, all partitions, from positions of its own.

Must never commit, never join a group and never skip a record silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse.kafka_errors import LoginRefusal
from blockhouse.kafka_login import Login
from blockhouse_aggregator.verifier.streams import Record

OFFSETS_TOPIC = "__consumer_offsets"
_BATCH = 2_000
_QUERY_SECONDS = 10.0


class NoCommitsYet(Retryable):
    """The cluster never had a consumer group: there is nothing to read."""


@dataclass(slots=True)
class Batch:
    """What came: records in order, ends of partitions that were reached, partitions whose log is not the old one."""

    records: list[Record] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)


def settings(cluster: KafkaCluster, client: str) -> dict[str, Any]:
    """librdkafka settings of a consumer outside of every group."""
    return {
        **cluster.client_config(),
        "group.id": f"blockhouse-{client}",
        "client.id": f"blockhouse-{client}",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "queued.max.messages.kbytes": 32 << 10,
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 2_000,
        "log_level": 0,
    }


class OffsetsReader:
    """A consumer of the offsets topic, or of another `topic` with such records; one thread. `start` first, then `read`.

    A cluster has `first_answer` seconds to answer at all. Errors are Retryable.
    """

    def __init__(
        self, cluster: KafkaCluster, topic: str = OFFSETS_TOPIC, *, first_answer: float = _QUERY_SECONDS
    ) -> None:
        self.cluster, self._topic, self._first_answer = cluster.name, topic, first_answer
        self._consumer = Consumer({**settings(cluster, "verifier"), "error_cb": self._note})
        self._login, self._refusal = Login(cluster), LoginRefusal()
        self._event: KafkaError | None = None

    def partitions(self) -> Mapping[int, tuple[int, int]]:
        """Every partition of the topic with its first offset and its end. Raises NoCommitsYet."""
        self._login.refresh(self._consumer)
        try:
            topic = self._consumer.list_topics(self._topic, timeout=self._first_answer).topics[self._topic]
            if topic.error is not None or not topic.partitions:
                raise NoCommitsYet(f"Kafka cluster {self.cluster} has no {self._topic} yet", after=2.0)
            return {
                number: self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), _QUERY_SECONDS)
                for number in sorted(topic.partitions)
            }
        except KafkaException as error:
            self._consumer.poll(0)  # in which it reports that its login is refused; nothing is read yet
            raise self._unreachable("listing the partitions of its offsets topic", error) from error

    def since(self, partitions: Mapping[int, tuple[int, int]], at_ms: int) -> dict[int, int]:
        """The first offset of each partition whose record is not older than `at_ms`; its end when there is none."""
        asked = [TopicPartition(self._topic, number, at_ms) for number in partitions]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=_QUERY_SECONDS)
        except KafkaException as error:
            raise self._unreachable("searching its offsets topic by time", error) from error
        return {p.partition: p.offset if p.offset >= 0 else partitions[p.partition][1] for p in found}

    def start(self, positions: Mapping[int, int]) -> None:
        """Read on at these offsets; a negative one stands for the beginning."""
        self._consumer.assign(
            [TopicPartition(self._topic, n, at if at >= 0 else OFFSET_BEGINNING) for n, at in positions.items()]
        )

    def read(self, timeout: float) -> Batch:
        """What has come; waits at most `timeout` seconds for the first of it. Raises Retryable when nothing comes and
        the client knows why; just read again."""
        self._login.refresh(self._consumer)
        try:
            messages = self._consumer.consume(_BATCH, 0)
            if not messages:
                first = self._consumer.poll(timeout)
                messages = [first, *self._consumer.consume(_BATCH, 0)] if first is not None else []
        except KafkaException as error:
            raise self._unreachable("reading its offsets topic", error) from error
        if not messages and self._event is not None:
            event, self._event = self._event, None
            raise self._unreachable("reading its offsets topic", event)
        if messages:
            self._refusal.over()
        batch = Batch()
        if any(map(Message.error, messages)):
            messages = [message for message in messages if not self._is_event(message, batch)]
        # Of data, neither partition nor offset is ever None.
        batch.records = [(m.partition(), m.offset(), m.key(), m.value()) for m in messages]  # type: ignore[misc]
        return batch

    def close(self) -> None:
        """Close its consumer; reading is not possible afterwards."""
        self._consumer.close()

    def _is_event(self, message: Message, batch: Batch) -> bool:
        error = message.error()
        if error is None:
            return False
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None:
            self._event = error
        elif error.code() == KafkaError._PARTITION_EOF:
            batch.ends[partition] = offset
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            # Not the log that was read: cut by an unclean election, or created again. It is read from its beginning.
            batch.broken.add(partition)
            again = TopicPartition(self._topic, partition, OFFSET_BEGINNING)
            self._consumer.incremental_unassign([again])
            self._consumer.incremental_assign([again])
        else:
            self._event = error
        return True

    def _note(self, error: KafkaError) -> None:
        self._refusal.note(error)
        if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION):
            self._event = error

    def _unreachable(self, doing: str, error: KafkaError | KafkaException) -> Retryable:
        return unreachable(self.cluster, doing, self._refusal.behind(error))


def unreachable(cluster: str, doing: str, error: KafkaError | KafkaException) -> Retryable:
    """Whatever the reason, the verifier waits and reports it: stopping would leave the streams unwatched."""
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    return Retryable(f"Kafka cluster {cluster}: {doing} failed: {cause.str()} ({cause.name()})", after=1.0)
