"""The stack itself: if it lied about its servers, every other integration test would prove nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from e2e.stack import Stack, StackError, StackSpec
from e2e.stack.process import MARK, wait_until

pytestmark = pytest.mark.integration

ONE_OF_EACH_KIND = ["zookeeper", "kafka-a-1", "clickhouse-1-2"]


def marked_processes(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").startswith(str(folder)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_all_servers_answer_and_know_who_they_are(stack: Stack) -> None:
    assert set(stack.servers) == {"zookeeper", "kafka-a-1", "kafka-b-1", "clickhouse-1-1", "clickhouse-1-2"}
    assert all(server.alive and server.answers() for server in stack.servers.values())
    for (shard, replica), server in stack.clickhouse.items():
        macros = dict(server.execute("SELECT macro, substitution FROM system.macros"))
        assert macros == {"shard": f"{shard:02d}", "replica": f"r{replica}"}
    assert stack.clickhouse[1, 1].version[0].isdigit()


def test_the_kafka_clusters_are_independent(stack: Stack, topic: Callable[..., str]) -> None:
    name = topic(partitions=3)
    ids: set[str | None] = set()
    for cluster in stack.kafka.values():
        metadata = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=60)
        assert len(metadata.topics[name].partitions) == 3
        assert {broker.port for broker in metadata.brokers.values()} == {cluster.brokers[0].port}
        ids.add(metadata.cluster_id)
    assert len(ids) == 2


def test_a_row_inserted_with_quorum_is_visible_on_both_replicas(stack: Stack, table: Callable[..., str]) -> None:
    name = table("id UInt64")
    writer, reader = stack.clickhouse[1, 1], stack.clickhouse[1, 2]

    writer.execute(f"INSERT INTO {name} VALUES", [(1, "a", 0, 7, 0, "t/id")], insert_quorum=2)

    assert reader.execute(f"SELECT * FROM {name}") == [(1, "a", 0, 7, 0, "t/id")]


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_a_killed_server_is_dead_at_once_and_comes_back_on_its_port(stack: Stack, name: str) -> None:
    server = stack.servers[name]
    before = server.pid
    assert before is not None

    server.kill()
    assert not server.alive
    assert not server.answers()
    assert not psutil.pid_exists(before)

    server.start()
    assert server.answers()
    assert server.pid != before


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_a_frozen_server_keeps_its_process_and_answers_again_when_thawed(stack: Stack, name: str) -> None:
    server = stack.servers[name]
    before = server.pid

    server.freeze()
    assert server.frozen
    assert not server.answers()

    server.thaw()
    server.wait_ready(timeout=30)
    assert server.pid == before


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_a_frozen_server_can_be_restarted_in_order(stack: Stack, name: str) -> None:
    server = stack.servers[name]
    server.freeze()

    server.restart()

    assert not server.frozen
    assert server.answers()


def test_data_survive_a_crash_of_everything(stack: Stack, topic: Callable[..., str], table: Callable[..., str]) -> None:
    # given a message in Kafka, rows in ClickHouse, and a node in ZooKeeper
    topic_name, table_name = topic(partitions=1), table("id UInt64", provenance=False)
    bootstrap = stack.kafka["a"].bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce(topic_name, b"kept")
    assert producer.flush(20) == 0
    stack.clickhouse[1, 1].execute(f"INSERT INTO {table_name} VALUES", [(42,)], insert_quorum=2)

    # when all servers crash and come back
    for server in stack.servers.values():
        server.kill()
    stack.start()

    # then nothing is lost
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic_name, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic_name])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.value() == b"kept"
    assert stack.clickhouse[1, 2].execute(f"SELECT id FROM {table_name}") == [(42,)]
    client = KazooClient(stack.zookeeper.connect)
    client.start()
    try:
        replicas = client.get_children(f"/clickhouse/tables/blockhouse/01/{table_name}/replicas")
    finally:
        client.stop()
        client.close()
    assert sorted(replicas) == ["r1", "r2"]


def test_leaving_the_context_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with Stack(folder, StackSpec(kafka_clusters=1, replicas=1)) as stack:
        pids = [server.pid for server in stack.servers.values()]
        assert len(marked_processes(folder)) == 3
        stack.servers["clickhouse-1-1"].freeze()

    assert not [pid for pid in pids if pid and psutil.pid_exists(pid)]
    assert marked_processes(folder) == []
    assert not folder.exists()


def test_servers_die_with_a_starter_that_was_killed(tmp_path: Path) -> None:
    script = (
        "import sys, threading; from pathlib import Path; from e2e.stack import Stack\n"
        "stack = Stack(Path(sys.argv[1]))\n"
        # a short-lived thread starts it: the server must live as long as the process, not the thread
        "thread = threading.Thread(target=stack.zookeeper.start); thread.start(); thread.join()\n"
        "print(stack.zookeeper.pid, flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert marked_processes(tmp_path) == [psutil.Process(pid)]
        os.kill(starter.pid, signal.SIGKILL)

    assert wait_until(lambda: not marked_processes(tmp_path), timeout=60)


def test_a_stack_whose_starter_was_killed_half_way_can_be_taken_down(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    blockhouse_stack = [sys.executable, "-c", "from e2e.stack.cli import app; app()"]
    with subprocess.Popen([*blockhouse_stack, "up", "--folder", str(folder), "--kafka", "1"]) as starter:
        assert wait_until(lambda: len(marked_processes(folder)) >= 2, timeout=60)
        os.kill(starter.pid, signal.SIGKILL)
    assert marked_processes(folder), "servers for people outlive the command"

    down = subprocess.run([*blockhouse_stack, "down", "--folder", str(folder)], timeout=60, check=False)

    assert down.returncode == 0
    assert marked_processes(folder) == []
    assert not folder.exists()


def test_a_server_that_cannot_start_reports_why(tmp_path: Path) -> None:
    spec = StackSpec(kafka_clusters=1, replicas=1, kafka_properties={"log.dirs": "/proc/nowhere"})
    stack = Stack(tmp_path / "s", spec)
    try:
        with pytest.raises(StackError, match=r"kafka-a-1[\s\S]*/proc/nowhere"):
            stack.servers["kafka-a-1"].start()
    finally:
        stack.close()
    assert marked_processes(tmp_path) == []


def test_brokers_of_one_cluster_replicate_across_racks_and_ask_for_passwords(tmp_path: Path) -> None:
    spec = StackSpec(kafka_clusters=1, brokers=3, replicas=1, kafka_scram={"loader": "secret"}, kafka_heap="160m")
    with Stack(tmp_path / "s", spec) as stack:
        cluster = stack.kafka["a"]
        cluster.create_topic("t", partitions=1)
        metadata = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics("t", timeout=60)
        assert len(metadata.topics["t"].partitions[0].replicas) == 3

        login: dict[str, Any] = {
            "bootstrap.servers": cluster.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "loader",
        }
        assert "t" in AdminClient({**login, "sasl.password": "secret"}).list_topics(timeout=60).topics
        refused: list[KafkaError] = []
        wrong_password: dict[str, Any] = {**login, "sasl.password": "wrong", "error_cb": refused.append}
        stranger = AdminClient(wrong_password)
        assert wait_until(lambda: stranger.poll(0.1) == 0 and bool(refused), timeout=60)
        assert KafkaError._AUTHENTICATION in {error.code() for error in refused}

        cluster.brokers[0].kill()
        assert cluster.brokers[1].answers(), "two of three controllers are a quorum"
