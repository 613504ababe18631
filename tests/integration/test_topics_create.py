"""`blockhouse topics create` on real clusters: shown first, made in each, kept as they are, one dead cluster named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.cli import app
from blockhouse.fleet.kafka_admin import KafkaFleet
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.conftest import Names

pytestmark = pytest.mark.integration


@pytest.fixture
def config(stack: Stack, names: Names, tmp_path: Path) -> Path:
    """An aggregator's configuration with both Kafka clusters."""
    path = tmp_path / "aggregator.yaml"
    clusters = [{"name": name, "bootstrapServers": kafka.bootstrap} for name, kafka in stack.kafka.items()]
    kafka = {"topic": names.topic, "group": names.group, "clusters": clusters}
    values = {"pipeline": "events", "shard": "01", "replica": "r1", "kafka": kafka, "zookeeper": {"servers": "zk:2181"}}
    path.write_text(json.dumps(values))  # which is YAML, too
    return path


def create(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(
        app, ["create", "--config", str(config), "--replication", "1", *arguments], env={"COLUMNS": "200"}
    )


def partitions(stack: Stack, topic: str) -> list[int]:
    """How many the topic has in each cluster."""
    found = []
    for name, servers in stack.kafka.items():
        with KafkaFleet(KafkaCluster(name=name, bootstrap_servers=servers.bootstrap)) as fleet:
            found.append(sum(key.topic == topic for key in fleet.partitions()))
    return found


def test_a_pipelines_topics_are_shown_and_then_made_in_every_cluster(stack: Stack, names: Names, config: Path) -> None:
    shown = create(config, "--partitions", "2")
    assert (shown.exit_code, shown.exception) == (0, None)
    assert "create with 2 partitions" in shown.stdout
    assert "nothing was changed" in shown.stderr
    assert partitions(stack, names.topic) == [0, 0]

    made = create(config, "--partitions", "2", "--set", "retention.ms=86400000", "--execute")
    assert made.exit_code == 0, made.stderr
    assert wait_until(lambda: partitions(stack, names.topic) == [2, 2], timeout=60)
    assert wait_until(lambda: partitions(stack, f"{names.topic}.dead-letters") == [2, 2], timeout=60)

    grown = create(config, names.topic, "--partitions", "3", "--set", "retention.ms=3600000", "--execute")
    assert grown.exit_code == 0, grown.stderr
    assert "add partitions up to 3" in grown.stdout
    assert "set retention.ms=3600000" in grown.stdout
    assert wait_until(lambda: partitions(stack, names.topic) == [3, 3], timeout=60)

    fewer = create(config, names.topic, "--partitions", "1", "--execute")
    assert fewer.exit_code == 1
    assert "partitions are never removed" in fewer.stderr
    assert partitions(stack, names.topic) == [3, 3]


def test_a_cluster_that_does_not_answer_is_named_and_holds_up_no_other(
    stack: Stack, names: Names, config: Path
) -> None:
    values = json.loads(config.read_text())
    values["kafka"]["clusters"].insert(0, {"name": "dead", "bootstrapServers": "127.0.0.1:1"})
    config.write_text(json.dumps(values))

    result = create(config, names.topic, "--partitions", "2", "--execute")

    assert result.exit_code == 1
    assert "Kafka cluster dead at 127.0.0.1:1 did not answer" in result.stderr
    assert wait_until(lambda: partitions(stack, names.topic) == [2, 2], timeout=60)


def test_what_cannot_be_created_is_named_before_anything_is(stack: Stack, names: Names, config: Path) -> None:
    too_many = create(config, names.topic, "--partitions", "2", "--replication", "9", "--execute")
    assert too_many.exit_code == 1
    assert "9 replicas cannot be placed on 1 brokers" in too_many.stderr
    assert partitions(stack, names.topic) == [0, 0]

    assert "give NAME=VALUE" in str(create(config, "--partitions", "1", "--set", "retention").exception)
