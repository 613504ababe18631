"""Which Kafka clusters answer at all: asked at once, so that a dead one does not hide what the others have."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaException

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError
from blockhouse.kafka_errors import translate
from blockhouse_aggregator.kafka.connecting import admin_client

TIMEOUT = 4.0


def unreachable(clusters: Sequence[KafkaCluster], timeout: float = TIMEOUT) -> Mapping[str, str]:
    """By name, why a cluster does not answer within `timeout` seconds; those that do are not in it."""
    silent: dict[str, str] = {}

    def ask(cluster: KafkaCluster) -> None:
        try:
            admin_client(cluster, {"client.id": "blockhouse-probe"}).list_topics(timeout=timeout)
        except BlockhouseError as error:
            silent[cluster.name] = str(error)
        except KafkaException as error:
            silent[cluster.name] = str(translate(error, f"asking cluster {cluster.name}"))

    asking = [threading.Thread(target=ask, args=(cluster,), daemon=True) for cluster in clusters]
    for each in asking:
        each.start()
    for each, cluster in zip(asking, clusters, strict=True):
        each.join(timeout + 1)
        if each.is_alive():
            silent.setdefault(cluster.name, f"cluster {cluster.name} did not answer in {timeout:g} s")
    return silent


def without(settings: AggregatorConfig, silent: Mapping[str, str]) -> AggregatorConfig:
    """The settings with the clusters that answer only; there may be none of them."""
    kept = tuple(cluster for cluster in settings.kafka.clusters if cluster.name not in silent)
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"clusters": kept})})
