"""Clients that ask a cluster's brokers, made again and again while a process runs.

Each reads the secrets and certificates of its cluster once more, which may have been changed since, or be gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.kafka_errors import translate


def admin_client(cluster: KafkaCluster, settings: Mapping[str, Any]) -> AdminClient:
    """A client with `settings` of librdkafka beside those that connect it. Raises Retryable or Permanent."""
    try:
        return AdminClient({**cluster.client_config(), **settings, "log_level": 0})
    except KafkaException as error:  # the client refuses its settings, e.g. an unreadable certificate
        raise translate(error, f"connecting to cluster {cluster.name}") from error
