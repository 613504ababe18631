"""What a process does about the Kafka clusters it was given: one under two names, and one whose topic grows."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined] # re-exported, undeclared

from blockhouse.producer.transport import Transport
from e2e.pipeline import Pipeline, PipelineSpec
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.runtime_pipeline import loading

pytestmark = pytest.mark.integration


def test_one_cluster_under_two_names_ends_the_process_at_its_start(running_stack: Stack, tmp_path: Path) -> None:
    """`config check` sees two addresses; the brokers know that they are one."""
    kafka = running_stack.kafka["a"]
    clusters = [
        {"name": "a", "bootstrapServers": kafka.bootstrap},
        {"name": "b", "bootstrapServers": kafka.bootstrap.replace("127.0.0.1", "localhost")},
    ]
    assert clusters[0]["bootstrapServers"] != clusters[1]["bootstrapServers"]
    spec = PipelineSpec(
        name="twice", topic="twice-events", aggregators=1, clusters=1, overrides={"kafka": {"clusters": clusters}}
    )
    with Pipeline(running_stack, tmp_path, spec) as pipeline:
        pipeline.create_topic()
        pipeline.start(wait=False)
        (aggregator,) = pipeline.aggregators.values()
        assert wait_until(lambda: not aggregator.alive, timeout=120)
        assert aggregator.exit_code == 71
        (line,) = aggregator.logged("kafka.clusters_are_one")
        assert line["clusters"] == ["a", "b"]


def test_partitions_that_are_added_to_a_topic_are_loaded_from_their_first_message(
    running_stack: Stack, tmp_path: Path
) -> None:
    with loading(running_stack, tmp_path, "grown", partitions=1, aggregators=1, clusters=1) as found:
        table = found.feed.table("grown")
        found.feed.send(table, 3)
        found.settle(table)
        topic, (cluster,) = found.pipeline.spec.topic, found.pipeline.clusters
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
        value, headers = found.feed.encode(table, [{"id": 1, "text": "new"}])
        transport = Transport([cluster], topic)
        for partition in (1, 2):
            for _ in range(3):
                transport.send(value, headers, partition=partition)
        transport.flush(60)
        server = running_stack.clickhouse[1, 1]
        counted = f"SELECT _kafka_partition, count() FROM {table} GROUP BY _kafka_partition"
        found.wait("rows of both", lambda: {(1, 3), (2, 3)} <= set(server.execute(counted)))
