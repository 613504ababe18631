"""Which topics of the source are copies that another mirror keeps there of topics of the target.

Copied in their turn they would come back under yet another name, and so on without end where both mirrors rename (G7).
A copy is known by the positions of its mirror, which are offsets in that very topic, on the cluster that has it.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import TimeoutError as FutureTimeoutError

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.mirror import GROUPS
from blockhouse.errors import Permanent, Retryable
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.kafka.positions import read_positions

TIMEOUT = 10.0


def copies(cluster: KafkaCluster, topics: Collection[str], origin: str) -> dict[str, str]:
    """Those of these topics of `cluster` that a mirror from the cluster with the id `origin` writes, each with the id
    that its original has there. Raises Retryable."""
    found: dict[str, str] = {}
    for group in _mirrors(cluster):
        try:
            positions = read_positions(cluster, group, [Key(topic, 0) for topic in topics])
        except Permanent:  # no mirror's, or that of a later version
            continue
        found |= {key.topic: each.topic_id for key, each in positions.items() if each.cluster == origin}
    return found


def _mirrors(cluster: KafkaCluster) -> list[str]:
    """Groups that may be those of mirrors; those that may not be described do not show."""
    admin = AdminClient({**cluster.client_config(), "client.id": "blockhouse-copies", "log_level": 0})
    try:
        listed = admin.list_consumer_groups(request_timeout=TIMEOUT).result(TIMEOUT + 1)
    except (KafkaException, FutureTimeoutError) as error:
        text = f"cluster {cluster.name} does not answer which groups it has, by which copies are known"
        raise Retryable(text, after=1.0) from error
    if listed.errors:
        text = f"not all brokers of cluster {cluster.name} answer which groups it has, by which copies are known"
        raise Retryable(text, after=1.0)
    return sorted(each.group_id for each in listed.valid if each.group_id.startswith(GROUPS))
