"""An operator's tools for the consumer group of a pipeline under test."""

from __future__ import annotations

from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # re-exported, undeclared
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from blockhouse.config.endpoints import KafkaCluster
from blockhouse_aggregator.kafka.group_offsets import committed_offsets
from e2e.pipeline import Pipeline
from tests.integration.runtime_pipeline import eventually


class Group:
    """An operator's tools for the pipeline's group in cluster a, while the group is empty."""

    def __init__(self, pipeline: Pipeline) -> None:
        kafka = pipeline.kafka["a"]
        self.name = f"{pipeline.spec.name}-01"
        self.topic = pipeline.spec.topic
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        self._cluster = KafkaCluster(name="a", bootstrap_servers=kafka.bootstrap)

    def committed(self) -> dict[int, tuple[int, str]]:
        """Offset and metadata by partition."""
        found = committed_offsets(self._cluster, self.name, self.topic)
        return {stream.partition: (value.offset or 0, value.metadata or "") for stream, value in found.items()}

    def commit(self, partition: int, offset: int, metadata: str) -> None:
        """What `kafka-consumer-groups --reset-offsets` does, with any metadata. Waits until the group is empty."""

        def done() -> bool:
            target = TopicPartition(self.topic, partition, offset, metadata)
            request = ConsumerGroupTopicPartitions(self.name, [target])
            try:
                answer = self.admin.alter_consumer_group_offsets([request])[self.name].result(60)
            except (KafkaException, TimeoutError):  # the dead member's session has not expired, or the broker is busy
                return False
            return all(found.error is None for found in answer.topic_partitions)

        assert eventually(done, 60)

    def delete(self) -> None:
        def done() -> bool:
            try:
                self.admin.delete_consumer_groups([self.name])[self.name].result(60)
            except KafkaException:  # as above
                return False
            return True

        assert eventually(done, 60)

    def cut(self, partition: int, below: int) -> None:
        """Delete messages below an offset, as retention does."""
        target = TopicPartition(self.topic, partition, below)
        self.admin.delete_records([target])[target].result(60)

    def set_topic(self, name: str, value: str) -> None:
        """Change one setting of the topic."""
        entry: Any = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(60)
