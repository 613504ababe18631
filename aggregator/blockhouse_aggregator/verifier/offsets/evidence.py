"""Asks one cluster what would excuse a finding: was that a hole, was that commit compacted, does that epoch reach it?

Reads single places of logs, outside of every group. Must never take silence for an excuse: what could not be read now
is asked again, and what is too much to read is counted, not believed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.streams import StreamId
from blockhouse_aggregator.verifier.anomaly import Anomaly, CommitCompacted, EpochReaches, HolesAreThere, LogBegins
from blockhouse_aggregator.verifier.checks.standing import Bounds
from blockhouse_aggregator.verifier.offsets.reader import OFFSETS_TOPIC, settings, unreachable
from blockhouse_aggregator.verifier.watched import Answer

_BATCH = 10_000
_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE)


class Evidence:
    """Answers questions about one cluster, one thread; each takes at most `timeout` seconds. Raises Retryable.

    `most` is how many offsets may be read for one question and, unless `unhurried`, for all questions of one look.
    """

    def __init__(self, cluster: KafkaCluster, most: int, *, unhurried: bool = False, timeout: float = 10.0) -> None:
        self._cluster, self._most, self._unhurried, self._timeout = cluster, most, unhurried, timeout
        self._left = most

    def answers(self, doubts: Sequence[Anomaly], bounds: Mapping[StreamId, Bounds]) -> list[tuple[Anomaly, Answer]]:
        """What the cluster answers for each; `bounds` are those of this look."""
        if not doubts:
            return []
        self._left = self._most
        consumer = Consumer({**self._settings(), "client.id": "blockhouse-verifier-evidence"})
        try:
            return [(doubt, self._answer(consumer, doubt, bounds.get(doubt.stream))) for doubt in doubts]
        except KafkaException as error:
            raise unreachable(self._cluster.name, "settling a suspicion", error) from error
        finally:
            consumer.close()

    def _settings(self) -> dict[str, Any]:
        return {**settings(self._cluster, "verifier"), "queued.max.messages.kbytes": 4 << 10, "fetch.wait.max.ms": 20}

    def _answer(self, consumer: Consumer, doubt: Anomaly, bounds: Bounds | None) -> Answer:
        excuse = doubt.finding.unless
        if isinstance(excuse, CommitCompacted):
            return self._compacted(consumer, excuse)
        if bounds is None:
            return Answer.NOT_NOW
        match excuse:
            case LogBegins(at):
                return Answer.YES if bounds.begin >= at else Answer.NO
            case HolesAreThere():
                return self._holes(consumer, doubt.stream, excuse, bounds)
            case EpochReaches():
                return self._reaches(consumer, doubt.stream, excuse, bounds)
            case None:
                return Answer.NO
            case _:
                assert_never(excuse)

    def _compacted(self, consumer: Consumer, excuse: CommitCompacted) -> Answer:
        at = TopicPartition(OFFSETS_TOPIC, excuse.partition, excuse.offset)
        first = self._first(consumer, at)
        if first is None:
            return Answer.NOT_NOW
        there = first.error() is None and first.offset() == excuse.offset
        return Answer.NO if there else Answer.YES

    def _reaches(self, consumer: Consumer, stream: StreamId, excuse: EpochReaches, bounds: Bounds) -> Answer:
        """The broker compares the epoch's end with the position when a reader begins there. It answers for a cut log
        and for a position outside of it the same: the bounds show which."""
        if excuse.position < bounds.begin:
            return Answer.YES  # retention has taken what the epoch could be proved by
        if excuse.position > bounds.end:
            return Answer.NO
        at = TopicPartition(stream.topic, stream.partition, excuse.position, "", excuse.epoch)
        first = self._first(consumer, at)
        if first is None:
            return Answer.NOT_NOW
        error = first.error()
        return Answer.NO if error is not None and error.code() in _LOST else Answer.YES

    def _holes(self, consumer: Consumer, stream: StreamId, excuse: HolesAreThere, bounds: Bounds) -> Answer:
        """Offsets below the log's begin may have been holes; behind its end nothing can be one."""
        begin, end = max(excuse.first, bounds.begin), min(excuse.end, bounds.end)
        if end <= begin:
            return Answer.YES if excuse.first < bounds.begin else Answer.NO
        if end - begin > self._most:
            return Answer.UNREAD
        if not self._unhurried and end - begin > self._left:
            return Answer.NOT_NOW
        self._left -= end - begin
        messages = self._messages(consumer, TopicPartition(stream.topic, stream.partition, begin), end)
        if messages is None:
            return Answer.NOT_NOW
        return Answer.YES if end - excuse.first - messages >= excuse.count else Answer.NO

    def _messages(self, consumer: Consumer, at: TopicPartition, end: int) -> int | None:
        """How many messages a reader gets from `at` up to `end`; None when it did not get so far in time."""
        consumer.assign([at])
        deadline = time.monotonic() + self._timeout
        count = 0
        while time.monotonic() < deadline:
            for message in consumer.consume(_BATCH, 0.2):
                error, offset = message.error(), message.offset()
                if error is None and offset is not None and offset < end:
                    count += 1
                elif error is not None and error.code() in _LOST:
                    return None  # retention, just now: the next look asks with other bounds
                elif error is None or error.code() == KafkaError._PARTITION_EOF:
                    return count
        return None

    def _first(self, consumer: Consumer, at: TopicPartition) -> Message | None:
        """The first that a reader gets from there: data, the end of the log or why there is none."""
        consumer.assign([at])
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None or error.code() in (KafkaError._PARTITION_EOF, *_LOST):
                return message
        return None
