"""The ids that topics have now, asked of the brokers for just these topics: one that was created again has another."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from concurrent.futures import TimeoutError as FutureTimeoutError

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse.kafka_login import Login

TIMEOUT = 4.0
_BITS = (1 << 64) - 1


class TopicIds:
    """Of one cluster. Blocking; used by one thread at a time."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._name, self._cluster = cluster.name, cluster
        self._login = Login(cluster)
        self._admin = self._connected()

    def _connected(self) -> AdminClient:
        return AdminClient({**self._cluster.client_config(), "client.id": "blockhouse-topic-ids", "log_level": 0})

    def of(self, topics: Collection[str]) -> dict[str, str]:
        """By topic, written as `fleet.kafka_admin` writes them; those that do not exist are left out. Raises Retryable
        when the cluster does not answer for one of them."""
        self._login.refresh(self._admin)
        found: dict[str, str] = {}
        asked = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT)
        for topic, future in asked.items():
            try:
                topic_id = future.result(TIMEOUT + 1).topic_id
            except (KafkaException, FutureTimeoutError) as error:
                if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                self._admin = self._connected()  # it would ask a broker that is gone again
                text = f"cluster {self._name} does not answer which id topic {topic} has: no position is written"
                raise Retryable(text, after=1.0) from error
            high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
            found[topic] = str(uuid.UUID(int=(high & _BITS) << 64 | low & _BITS))
        return found
