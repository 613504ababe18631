"""Where the logs of many streams of one cluster end, asked of the brokers in two requests however many there are.

A connection of its own, with a short time-out: what is stuck elsewhere must not keep the answer from a person.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # re-exported, undeclared

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.kafka_errors import LoginRefusal, translate
from blockhouse.kafka_login import Certificates, Login
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.connecting import admin_client
from blockhouse_aggregator.kafka.facts import CLIENT_ENDING, NO_SUCH_OFFSET

TIMEOUT = 4.0
"""Seconds for one request to all brokers."""


class Ends(NamedTuple):
    """`high` is the high watermark, `stable` the last stable offset, below every open transaction."""

    high: int
    stable: int


class LogEnds:
    """Of one cluster. Blocking; used by one thread at a time."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._name = cluster.name
        self._login, self._refusal = Login(cluster), LoginRefusal()
        self._admin = self._connect()

    def _connect(self) -> AdminClient:
        self._certificates = Certificates(self._cluster)
        return admin_client(self._cluster, {"client.id": "blockhouse-log-ends", "error_cb": self._refusal.note})

    def latest(self, streams: Collection[StreamId]) -> Mapping[StreamId, Ends]:
        """The ends of those streams whose leader answers. Raises Retryable or Permanent when none does."""
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        high = self._ask(streams, spec, IsolationLevel.READ_UNCOMMITTED)
        stable = self._ask(streams, spec, IsolationLevel.READ_COMMITTED)
        return {stream: Ends(max(high[stream], stable[stream]), stable[stream]) for stream in high.keys() & stable}

    def at(self, streams: Collection[StreamId], timestamp_ms: int) -> Mapping[StreamId, int]:
        """The first offset whose message is not older than Unix milliseconds; negative where there is none."""
        return self._ask(streams, OffsetSpec.for_timestamp(timestamp_ms), IsolationLevel.READ_UNCOMMITTED)

    def _ask(self, streams: Collection[StreamId], spec: OffsetSpec, level: IsolationLevel) -> dict[StreamId, int]:
        self._login.refresh(self._admin)
        partitions = {TopicPartition(s.topic, s.partition): s for s in streams}
        futures = self._admin.list_offsets(
            dict.fromkeys(partitions, spec), isolation_level=level, request_timeout=TIMEOUT
        )
        found: dict[StreamId, int] = {}
        problem: BlockhouseError | None = None
        for partition, future in futures.items():
            stream = StreamId(self._name, partition.topic, partition.partition)
            try:
                offset = int(future.result(TIMEOUT + 1).offset)
                if offset >= NO_SUCH_OFFSET:
                    found[stream] = offset
                else:
                    problem = Retryable(f"Kafka: the broker that led {stream} does not answer where its log ends")
                    self._admin = self._connect()  # it would ask the broker that is gone again
            except KafkaException as error:
                problem = self._failure(error, stream)
            except FutureTimeoutError:
                self._admin = self._connect()
                problem = Retryable(f"Kafka: cluster {self._name} did not answer in {TIMEOUT:g} s where its logs end")
        if problem is not None and not found:
            raise problem
        self._admin.poll(0)  # in which it reports what was before this
        self._refusal.over()
        return found

    def _failure(self, error: KafkaException, stream: StreamId) -> BlockhouseError:
        self._admin.poll(0)  # in which it reports that its login is refused
        if error.args[0].code() in CLIENT_ENDING or self._certificates.replaced():
            self._admin = self._connect()
        return translate(self._refusal.behind(error), f"reading the end of {stream} in cluster {self._name}")
