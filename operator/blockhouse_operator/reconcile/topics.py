"""Keep a shard's topic in every Kafka cluster as in the spec. A cluster that does not answer holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from blockhouse.fleet.topics import DesiredTopic
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import kafka
from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.api.status import TopicStatus
from blockhouse_operator.reconcile.cluster_topics import ClusterTopics
from blockhouse_operator.reconcile.services import Services

Place = tuple[str, str]
"""A Kafka cluster as a spec describes it, and the version of the Secrets with which it is reached."""


class TopicKeeper:
    """The Kafka clusters of all shards: those that are reached in the same way share one observation."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._clusters: dict[Place, ClusterTopics] = {}

    async def keep(
        self, spec: ClickHouseShardIngestSpec, contents: Contents, before: Sequence[TopicStatus]
    ) -> tuple[tuple[TopicStatus, ...], Mapping[str, str]]:
        """The topic in every cluster that is not retired, and clusters that do not answer with why.

        `before` is what was reported last: it stands until a cluster has answered.
        """
        known = {status.cluster: status for status in before}
        topic = spec.kafka.topic
        desired = DesiredTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            dict(topic.config),
            rack_aware=topic.placement == "RackAware",
        )
        clusters = [cluster for cluster in spec.kafka.clusters if not cluster.retired]
        found = await asyncio.gather(
            *(self._keep_in(cluster, desired, contents, known.get(cluster.name)) for cluster in clusters)
        )
        trouble = {s.cluster: s.message for s in found if s.state == Reason.KAFKA_UNREACHABLE.value}
        return tuple(found), trouble

    async def _keep_in(
        self, cluster: kafka.KafkaCluster, desired: DesiredTopic, contents: Contents, before: TopicStatus | None
    ) -> TopicStatus:
        try:
            topics = self._topics(cluster, contents)
        except KeyError as error:
            return _status(cluster.name, Reason.SECRET_MISSING, f"Secret {error} is missing")
        # It continues by itself; until it has an answer the last one stands, so that no cluster delays another.
        found = await topics.status(desired)
        return found or before or _status(cluster.name, Reason.PROGRESSING, "the cluster is being asked")

    def _topics(self, cluster: kafka.KafkaCluster, contents: Contents) -> ClusterTopics:
        access = contents.version() if cluster.tls or cluster.sasl else ""
        place = (cluster.model_dump_json(), access)
        if place not in self._clusters:
            self._clusters = {place: topics for place, topics in self._clusters.items() if not topics.idle()}
            self._clusters[place] = ClusterTopics(self._services, contents.kafka(cluster))
        return self._clusters[place]


def _status(cluster: str, reason: Reason, message: str) -> TopicStatus:
    return TopicStatus(cluster=cluster, state=reason.value, message=message)
