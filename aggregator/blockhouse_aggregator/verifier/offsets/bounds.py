"""Where the logs of streams begin and end, asked of the brokers for all streams at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec  # type: ignore[attr-defined] # re-exported, undeclared

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse.kafka_login import Login
from blockhouse.streams import StreamId
from blockhouse_aggregator.verifier.checks.standing import Bounds
from blockhouse_aggregator.verifier.offsets.reader import unreachable

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_URL_SAFE = str.maketrans("+/", "-_")
_ABSENT = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
"""What is answered for topics and partitions that do not exist, or have no leader now: nothing to judge by."""


class LogBounds:
    """Asks one cluster. Raises Retryable."""

    def __init__(self, cluster: KafkaCluster, *, timeout: float = 10.0) -> None:
        self._cluster, self._config = cluster.name, cluster
        self._timeout = timeout
        self._login = Login(cluster)
        self._admin = self._connected()

    def _connected(self) -> AdminClient:
        return AdminClient({**self._config.client_config(), "client.id": "blockhouse-verifier", "log_level": 0})

    def ask(self, streams: Collection[StreamId]) -> Mapping[StreamId, Bounds]:
        """Bounds of the streams whose topic and partition exist and have a leader."""
        self._login.refresh(self._admin)
        ids = self._topic_ids({stream.topic for stream in streams})
        there = [stream for stream in streams if stream.topic in ids]
        # The beginning first: a log that is cut between the two questions must not look as if it ended early.
        begins = self._list(there, _EARLIEST)
        ends = self._list(there, _LATEST)
        return {
            s: Bounds(begins[s].offset, ends[s].offset, ids[s.topic], _epoch(ends[s]))
            for s in there
            if s in begins and s in ends
        }

    def ends(self, topic: str, partitions: Collection[int]) -> Mapping[int, int]:
        """The last stable offsets of a topic's partitions."""
        self._login.refresh(self._admin)
        found = self._list([StreamId(self._cluster, topic, number) for number in partitions], _LATEST)
        return {stream.partition: end.offset for stream, end in found.items()}

    def _topic_ids(self, topics: set[str]) -> Mapping[str, str]:
        """Asked again every time: the bounds of a topic that was created again must never be taken for the old
        one's."""
        if not topics:
            return {}
        futures = self._admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=self._timeout)
        found = {topic: self._result(future, f"describing topic {topic}") for topic, future in futures.items()}
        return {topic: str(d.topic_id).translate(_URL_SAFE) for topic, d in found.items() if d is not None}

    def _list(self, streams: Collection[StreamId], spec: OffsetSpec) -> dict[StreamId, ListOffsetsResultInfo]:
        if not streams:
            return {}
        asked = {TopicPartition(s.topic, s.partition): spec for s in streams}
        futures = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._timeout
        )
        found: dict[StreamId, ListOffsetsResultInfo] = {}
        for partition, future in futures.items():
            answer = self._result(future, f"reading the bounds of {partition.topic}/{partition.partition}")
            if answer is not None and answer.offset < 0:
                # The client's own answer, without an error, for a leader that is gone: it would ask that one again.
                self._admin = self._connected()
            elif answer is not None:
                found[StreamId(self._cluster, partition.topic, partition.partition)] = answer
        return found

    def _result(self, future: Any, doing: str) -> Any:
        """The answer; None when it is about something that does not exist (now). Raises Retryable."""
        try:
            return future.result(self._timeout + 1)
        except KafkaException as error:
            if error.args[0].code() in _ABSENT:
                return None
            self._admin = self._connected()  # it keeps the epoch of a leader that has been restarted
            raise unreachable(self._cluster, doing, error) from error
        except FutureTimeoutError as error:
            self._admin = self._connected()
            raise Retryable(f"Kafka cluster {self._cluster}: {doing} took too long", after=1.0) from error


def _epoch(answer: ListOffsetsResultInfo) -> int:
    return -1 if answer.leader_epoch is None else answer.leader_epoch
