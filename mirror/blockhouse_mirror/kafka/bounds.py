"""Where logs begin and end, asked of the brokers in a few requests however many partitions there are."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import NamedTuple

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # re-exported, undeclared

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse.kafka_login import Login
from blockhouse.placement.model import TopicPartition as Key

TIMEOUT = 5.0


class Bounds(NamedTuple):
    """Offsets [begin, end) of one partition."""

    begin: int
    end: int


class LogBounds:
    """Of one cluster. Blocking; used by one thread at a time."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._login = Login(cluster)
        self._admin = self._connected()

    def _connected(self) -> AdminClient:
        return AdminClient({**self._cluster.client_config(), "client.id": "blockhouse-bounds", "log_level": 0})

    def of(self, keys: Collection[Key]) -> dict[Key, Bounds]:
        """The bounds of those partitions whose leader answers in time."""
        self._login.refresh(self._admin)
        begins = self._ask(keys, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        ends = self._ask(begins, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {key: Bounds(begins[key], end) for key, end in ends.items()}

    def _ask(self, keys: Collection[Key], spec: OffsetSpec) -> dict[Key, int]:
        if not keys:
            return {}
        asked = {TopicPartition(*key): spec for key in keys}
        level = IsolationLevel.READ_UNCOMMITTED
        found: dict[Key, int] = {}
        for partition, future in self._admin.list_offsets(
            asked, isolation_level=level, request_timeout=TIMEOUT
        ).items():
            try:
                offset = int(future.result(TIMEOUT + 1).offset)
            except (KafkaException, FutureTimeoutError):
                continue
            if offset >= 0:
                found[Key(partition.topic, partition.partition)] = offset
        if len(found) < len(asked):
            with suppress(Retryable):  # while its Secret is missing the present one stays
                self._admin = self._connected()  # that one would ask a broker that is gone again
        return found
