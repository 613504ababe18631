"""`blockhouse topics apply` on a real cluster of three brokers: what is foreseen, and what disappears in the middle."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.placement.model import TopicPartition
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.process import wait_until
from tests.integration.throttled_moves import BROKERS, MB, SMALL_FETCHES, Writer, create, is_left, settings_left

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

BLOCKHOUSE = Path(sys.executable).with_name("blockhouse")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaClusterServers]:
    with kafka_cluster("plans", tmp_path_factory.mktemp("plans"), dict.fromkeys(BROKERS, SMALL_FETCHES)) as up:
        yield up


@pytest.fixture
def fleet(kafka: KafkaClusterServers) -> Iterator[KafkaFleet]:
    with KafkaFleet(KafkaCluster(name="plans", bootstrap_servers=kafka.bootstrap)) as fleet:
        yield fleet


def plan_file(path: Path, *topics: str) -> str:
    """A plan that moves partition 0 of the topics to brokers 3 and 2."""
    partitions = [{"topic": topic, "partition": 0, "replicas": [3, 2]} for topic in topics]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def apply_command(kafka: KafkaClusterServers, folder: Path, *topics: str) -> list[str]:
    live = ["--bootstrap-server", kafka.bootstrap, "--state", str(folder / "record.json")]
    return [str(BLOCKHOUSE), "topics", "apply", plan_file(folder / "plan.json", *topics), *live]


def test_a_plan_that_would_not_end_is_named_before_anything_moves(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    create(kafka, fleet, "foreseen", 5)
    command = [*apply_command(kafka, tmp_path, "foreseen"), "--interval", "5", "--throttle"]
    with contextlib.closing(Writer(kafka.bootstrap, "foreseen", 4 * MB)):
        slow = subprocess.run([*command, "1MB/s"], capture_output=True, text=True, timeout=120, check=False)
        quick = subprocess.run([*command, "80MB/s"], capture_output=True, text=True, timeout=120, check=False)
    assert (slow.returncode, quick.returncode) == (0, 0), slow.stderr + quick.stderr
    assert "broker 3 (follower)" in slow.stderr
    assert "needed, at most 1 MB/s possible" in slow.stderr
    assert "it would not end" not in quick.stderr
    assert fleet.moves() == {}
    assert is_left(fleet, "foreseen")


def test_a_topic_that_is_deleted_in_the_middle_is_left_out_by_the_command(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    create(kafka, fleet, "stays", 20)
    create(kafka, fleet, "goes", 40)
    command = [*apply_command(kafka, tmp_path, "stays", "goes"), "--execute", "--interval", "2", "--throttle", "2MB/s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert wait_until(lambda: len(fleet.moves()) == 2, timeout=60)
            fleet.delete_topic("goes")
            out, errors = running.communicate(timeout=200)
        finally:
            running.kill()
    assert running.returncode == 0, errors
    assert "1 deleted meanwhile" in out
    assert "every partition, but 1 that were deleted meanwhile, is as planned" in out.replace("\n", " ")
    assert fleet.partitions()[TopicPartition("stays", 0)].in_sync == {2, 3}
    assert is_left(fleet, "stays")
    assert json.loads((tmp_path / "record.json").read_text())["rates"] == []


def test_a_plan_that_is_cancelled_leaves_no_throttle(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    create(kafka, fleet, "cancelled", 30)
    command = apply_command(kafka, tmp_path, "cancelled")
    slow = [*command, "--execute", "--interval", "2", "--throttle", "1MB/s"]
    with subprocess.Popen(slow, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        assert wait_until(lambda: bool(fleet.moves()), timeout=60)
        running.kill()
    assert settings_left(fleet, "cancelled"), "Kafka keeps the throttle of a command that was killed"
    done = subprocess.run([*command, "--cancel"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert fleet.moves() == {}
    assert set(fleet.partitions()[TopicPartition("cancelled", 0)].replicas) == {1, 2}
    assert is_left(fleet, "cancelled")
    assert json.loads((tmp_path / "record.json").read_text())["rates"] == []
