"""What a consumer group has committed, asked and, for an empty group, set from outside. Never joins it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse.kafka_errors import translate
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.group import Committed


def committed_offsets(
    cluster: KafkaCluster, group: str, topic: str, *, timeout: float = 10.0
) -> Mapping[StreamId, Committed]:
    """Every stream of the topic for which the group has a committed offset. Raises Retryable or Permanent.

    By a consumer that never joins, since the admin client crashes, process and all, while the coordinator still loads
    the group (librdkafka 2.16.1: it asks for the coordinator again on behalf of a member that there is not).
    """
    doing = f"reading the offsets of group {group} in cluster {cluster.name}"
    consumer = Consumer({**_client(cluster), "group.id": group, "enable.auto.commit": False})
    try:
        known = consumer.list_topics(topic, timeout=timeout).topics[topic]
        found = consumer.committed([TopicPartition(topic, number) for number in known.partitions], timeout)
    except KafkaException as error:
        raise translate(error, doing) from error
    finally:
        consumer.close()
    for each in found:
        if each.error is not None:
            raise translate(each.error, f"{doing}, partition {each.partition}")
    return {
        StreamId(cluster.name, topic, each.partition): Committed(each.offset, each.metadata or "")
        for each in found
        if each.offset >= 0
    }


def set_offsets(
    cluster: KafkaCluster, group: str, offsets: Mapping[StreamId, tuple[int, str]], *, timeout: float = 20.0
) -> None:
    """Commit offset and metadata for each stream. Only while the group has no member: the broker refuses it otherwise.

    Raises Retryable or Permanent; some streams may be set then, and all may be set again.
    """
    doing = f"setting the offsets of group {group} in cluster {cluster.name}"
    targets = [TopicPartition(s.topic, s.partition, offset, text) for s, (offset, text) in offsets.items()]
    request = ConsumerGroupTopicPartitions(group, targets)
    admin = AdminClient(_client(cluster))  # kept until it has answered
    future = admin.alter_consumer_group_offsets([request], request_timeout=timeout)[group]
    for found in _answer(future, doing, timeout).topic_partitions or ():
        if found.error is not None:
            raise translate(found.error, f"{doing}, partition {found.partition}")


def _client(cluster: KafkaCluster) -> dict[str, Any]:
    return {**cluster.client_config(), "client.id": "blockhouse-offsets", "log_level": 0}


def _answer(future: Future[ConsumerGroupTopicPartitions], doing: str, timeout: float) -> ConsumerGroupTopicPartitions:
    """Raises Retryable or Permanent; `doing` is, for the message, what was tried."""
    try:
        return future.result(timeout + 1)
    except KafkaException as error:
        raise translate(error, doing) from error
    except FutureTimeoutError as error:
        raise Retryable(f"Kafka: {doing} took longer than {timeout:g} s", after=1.0) from error
