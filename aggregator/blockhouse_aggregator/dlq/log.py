"""Reads the dead-letter topics of a pipeline, and sends letters again.

A letter is sent again and marked as such in one Kafka transaction, so that neither a crash nor a second operator makes
it two messages. (Loading relies on no transaction: the aggregators read committed messages like any others.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse.kafka_errors import translate
from blockhouse.streams import StreamId
from blockhouse_aggregator.dlq.letters import Collection, Letter, Record, Selection, headers_again
from blockhouse_aggregator.kafka.dead_letters import REPLAYED
from blockhouse_aggregator.kafka.headers import Unreadable, headers_of

BATCH = 100
"""Letters of one transaction."""
_SECONDS = 20.0
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_PATIENCE = 60.0
"""Seconds without any progress after which reading is abandoned."""


def read(cluster: KafkaCluster, topic: str, selection: Selection, *, values: bool = False) -> Collection:
    """All records of the topic up to now. A topic that does not exist has none. Raises Retryable or Permanent."""
    found = Collection(selection, values)
    found.add(_records(cluster, topic))
    return found


def _records(cluster: KafkaCluster, topic: str) -> Iterator[Record]:
    consumer = Consumer(
        {
            **cluster.client_config(),
            "group.id": "blockhouse-dlq",
            "client.id": "blockhouse-dlq",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    doing = f"reading dead letters of {topic} in cluster {cluster.name}"
    try:
        known = consumer.list_topics(topic, timeout=_SECONDS).topics[topic]
        if known.error is not None:
            if known.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return
            raise translate(known.error, doing)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in known.partitions])
        yield from _until_the_ends(consumer, set(known.partitions), doing)
    except KafkaException as error:
        raise translate(error, doing) from error
    finally:
        consumer.close()


def _until_the_ends(consumer: Consumer, open_partitions: set[int], doing: str) -> Iterator[Record]:
    """Each partition up to the end it is found to have."""
    heard = time.monotonic()
    while open_partitions:
        messages: list[Message] = consumer.consume(1000, 0.5)
        if not messages and time.monotonic() - heard > _PATIENCE:
            raise Retryable(f"Kafka: {doing}: nothing was heard for {_PATIENCE:g} s", after=1.0)
        for message in messages:
            heard = time.monotonic()
            error = message.error()
            if error is None:
                yield _record(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition() or 0)
            else:
                raise translate(error, doing)


def _record(message: Message) -> Record:
    key: Any = message.key()
    value: Any = message.value()
    headers = headers_of(message)
    # A record whose headers cannot be read was written by others: without headers it is counted as such.
    return Record(key, value, () if isinstance(headers, Unreadable) else tuple(headers), message.timestamp()[1])


class Resender:
    """Sends letters again into the topics they came from, in their cluster; records where in the dead-letter topic.

    One at a time per topic: a second one fences the first. Use as a context manager.
    """

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._fenced = False
        self._producer = Producer(
            {
                **cluster.client_config(),
                "client.id": "blockhouse-dlq",
                "transactional.id": f"blockhouse-dlq-{topic}",
                "transaction.timeout.ms": 60_000,
                "message.max.bytes": 1_000_000_000,  # the topic's own limit decides
                "linger.ms": 0,
                "log_level": 0,
                "error_cb": self._note,
            }
        )

    def start(self) -> None:
        """Fence any other process that sends letters of this topic; finish or undo what it had begun."""
        try:
            self._producer.init_transactions(_SECONDS)
        except KafkaException as error:
            raise translate(error, f"preparing to send dead letters of {self._topic} again") from error

    def send(self, letters: Sequence[Letter]) -> dict[str, str]:
        """Send at most BATCH letters, all or none; returns where each went, as `cluster/topic/partition/offset`.

        Raises Retryable, or Permanent (fenced by another operator, not authorized, too large). When the fate is not
        known, the marks in the topic show it: `dlq list` afterwards.
        """
        doing = f"sending {len(letters)} dead letters of {self._topic} in cluster {self._cluster.name} again"
        try:
            self._producer.begin_transaction()
            places = self._produce(letters, doing)
            for letter in letters:
                mark: list[tuple[str, str | bytes | None]] = [(REPLAYED, places[letter.key].encode())]
                self._producer.produce(self._topic, key=letter.key, value=None, headers=mark)
            self._commit()
        except KafkaException as error:
            self._abort()
            raise self._explained(error.args[0], doing) from error
        except BlockhouseError:
            self._abort()
            raise
        return places

    def _produce(self, letters: Sequence[Letter], doing: str) -> dict[str, str]:
        """Returns when the brokers have all of them (inside the transaction)."""
        places: dict[str, str] = {}
        failures: list[KafkaError] = []
        for letter in letters:

            def delivered(error: KafkaError | None, message: Message, letter: Letter = letter) -> None:
                if error is not None:
                    failures.append(error)
                    return
                at = StreamId(self._cluster.name, message.topic() or "", message.partition() or 0)
                places[letter.key] = f"{at}/{message.offset()}"

            self._producer.produce(
                letter.stream.topic,
                key=letter.message_key,
                value=letter.value,
                partition=letter.stream.partition,
                headers=list(headers_again(letter)),
                on_delivery=delivered,
            )
        try:
            self._producer.flush(_SECONDS)
        except SystemError as error:  # the client meets a fatal error (a fence) while it calls `delivered`
            if isinstance(error.__cause__, KafkaException):
                raise error.__cause__ from error
            raise
        if failures:
            raise self._explained(failures[0], doing)
        if len(places) < len(letters):
            raise Retryable(f"Kafka: {doing}: not acknowledged in {_SECONDS:g} s", after=1.0)
        return places

    def _commit(self) -> None:
        """A retriable failure leaves the same commit to be asked for again: only then is its fate known."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self._producer.commit_transaction(_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _abort(self) -> None:
        """Best effort: what is not aborted now is by the next `start`, or by the broker's time-out."""
        try:
            self._producer.abort_transaction(_SECONDS)
        except KafkaException:
            return

    def _note(self, error: KafkaError) -> None:
        """The client reports a fence here too, before or instead of an answer to the call that met it."""
        self._fenced |= error.code() in _FENCED

    def _explained(self, cause: KafkaError, doing: str) -> BlockhouseError:
        if self._fenced or cause.code() in _FENCED:
            text = f"Kafka: {doing} failed: another process does so now; see `blockhouse dlq list`"
            return Permanent(text, reason="Fenced")
        return translate(cause, doing)
