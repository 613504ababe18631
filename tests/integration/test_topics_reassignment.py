"""Plans on a real cluster: a broker dies and is replaced while records are produced; a move is cancelled and resumed.

Four brokers in three racks: 1 (a), 2 (b), 3 (c) and a second one in c, 4, that replaces 3.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from typer.testing import CliRunner, Result

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.cli import app
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.placement.model import PartitionMap, TopicPartition
from blockhouse.placement.topics import assign_partitions
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.process import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RACKS = {1: "a", 2: "b", 3: "c", 4: "c"}
PARTITIONS = 6
UNTHROTTLED = ("--throttle", "none")
SMALL_FETCHES = {"replica.fetch.max.bytes": "65536", "replica.fetch.response.max.bytes": "65536"}
"""A throttle takes effect after a fetch: one that brings everything would never be throttled."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaClusterServers]:
    properties = {node: {"broker.rack": rack, **SMALL_FETCHES} for node, rack in RACKS.items()}
    with kafka_cluster("racks", tmp_path_factory.mktemp("racks"), properties) as servers:
        yield servers


@pytest.fixture
def fleet(kafka: KafkaClusterServers) -> Iterator[KafkaFleet]:
    with KafkaFleet(KafkaCluster(name="racks", bootstrap_servers=kafka.bootstrap)) as fleet:
        yield fleet


class Stream:
    """Produces numbered records to every partition in turn until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._topic = topic
        self._stopped = Event()
        self._thread = Thread(target=self._run)
        self.sent = 0
        self.lost = 0
        self._thread.start()

    def _run(self) -> None:
        padding = b"." * 1000
        while not self._stopped.is_set():
            for partition in range(PARTITIONS):
                self._producer.produce(
                    self._topic, b"%d" % self.sent + padding, partition=partition, on_delivery=self._delivered
                )
            self.sent += 1
            self._producer.poll(0.002)

    def _delivered(self, error: object, _message: object) -> None:
        self.lost += error is not None

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def create(kafka: KafkaClusterServers, fleet: KafkaFleet, topic: str) -> PartitionMap:
    """A topic on brokers 1, 2 and 3, placed by our own assignment."""
    alive = {id: broker for id, broker in fleet.brokers().items() if id != 4}
    placed = assign_partitions(topic, range(PARTITIONS), 3, alive, PartitionMap({}))
    new = NewTopic(topic, num_partitions=PARTITIONS, replica_assignment=[list(placed[key]) for key in placed])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})  # its requests end when it is forgotten
    admin.create_topics([new])[topic].result(timeout=60)
    assert wait_until(lambda: sets_of(fleet, topic) == placed, timeout=60)
    return placed


def sets_of(fleet: KafkaFleet, topic: str) -> PartitionMap:
    return PartitionMap({key: state.replicas for key, state in fleet.partitions().items() if key.topic == topic})


def read_all(bootstrap: str, topic: str, partition: int, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([Offset(topic, partition, 0)])
    numbers: list[int] = []
    deadline = time.monotonic() + 60
    while len(numbers) < count and time.monotonic() < deadline:
        for message in consumer.consume(500, timeout=1):
            assert message.error() is None
            numbers.append(int((message.value() or b"").rstrip(b".")))
    consumer.close()
    return numbers


def throttle(kafka: KafkaClusterServers, topic: str, *, on: bool) -> None:
    """Let new followers of the topic copy 1 KiB a second, so that a move is still under way when it is checked."""

    def entry(name: str, value: str) -> ConfigEntry:
        operation = AlterConfigOpType.SET if on else AlterConfigOpType.DELETE
        return ConfigEntry(name, value if on else None, incremental_operation=operation)

    rate = entry("follower.replication.throttled.rate", "1024")
    resources = [ConfigResource("BROKER", str(id), incremental_configs=[rate]) for id in RACKS]
    replicas = entry("follower.replication.throttled.replicas", "*")
    resources.append(ConfigResource("TOPIC", topic, incremental_configs=[replicas]))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for resource in resources:  # a broker's settings are a request of their own
        admin.incremental_alter_configs([resource])[resource].result(timeout=60)


def test_the_cluster_reports_racks_sizes_and_free_space(kafka: KafkaClusterServers, fleet: KafkaFleet) -> None:
    create(kafka, fleet, "measured")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce("measured", b"x" * 100_000, partition=2)
    producer.flush(20)

    storage = fleet.storage()

    assert {id: broker.rack for id, broker in fleet.brokers().items()} == RACKS
    assert storage.free.keys() == RACKS.keys()
    assert all(free > 1 << 20 for free in storage.free.values())
    assert storage.sizes[TopicPartition("measured", 2)] > 100_000
    assert storage.sizes[TopicPartition("measured", 0)] == 0


def test_a_plan_is_cancelled_resumed_and_found_done(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    placed = create(kafka, fleet, "moving")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(600):
        producer.produce("moving", b"x" * 10_000, partition=number % PARTITIONS)
    producer.flush(30)
    plan, live = tmp_path / "plan.json", ("--bootstrap-server", kafka.bootstrap)
    files = ("--out", str(plan), "--rollback", str(tmp_path / "rollback.json"))
    planned = run("plan", "rebuild", *live, "--topics", "moving", "--brokers", "1,2,4", *files)
    assert planned.exit_code == 0, planned.output

    shown = run("apply", str(plan), *live)
    assert shown.exit_code == 0, shown.output
    assert sets_of(fleet, "moving") == placed  # a dry run changes nothing

    throttle(kafka, "moving", on=True)
    assert run("apply", str(plan), *live, "--execute", *UNTHROTTLED, "--timeout", "3").exit_code == 1
    assert len(fleet.moves()) == PARTITIONS
    assert "moving" in run("apply", str(plan), *live).output

    cancelled = run("apply", str(plan), *live, "--cancel")
    assert cancelled.exit_code == 0, cancelled.output
    assert cancelled.output.count("cancelled: ") == PARTITIONS
    assert fleet.moves() == {}
    assert sets_of(fleet, "moving").brokers() == {1, 2, 3}

    back = run("apply", str(tmp_path / "rollback.json"), *live, "--execute", *UNTHROTTLED, "--timeout", "60")
    assert back.exit_code == 0, (back.output, back.exception)
    assert sets_of(fleet, "moving") == placed  # Kafka's cancel restores the brokers but not their order

    throttle(kafka, "moving", on=False)
    done = run("apply", str(plan), *live, "--execute", *UNTHROTTLED, "--timeout", "120", "--in-flight", "2")
    assert done.exit_code == 0, (done.output, done.exception)
    assert sets_of(fleet, "moving").brokers() == {1, 2, 4}
    again = run("apply", str(plan), *live, "--execute", *UNTHROTTLED)
    assert f"{PARTITIONS} done, 0 copying" in again.output


def test_a_dead_broker_is_replaced_while_records_are_produced(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    create(kafka, fleet, "orders")
    stream = Stream(kafka.bootstrap, "orders")
    try:
        assert wait_until(lambda: stream.sent > 1000, timeout=60)
        kafka.brokers[2].kill()
        assert wait_until(lambda: 3 not in fleet.brokers(), timeout=60)
        plan, live = tmp_path / "plan.json", ("--bootstrap-server", kafka.brokers[0].bootstrap)

        planned = run(
            "plan", "rebuild", *live, "--brokers", "1,2,4", "--topics", "orders", "--json",
            "--out", str(plan), "--optimize-leadership",
        )  # fmt: skip
        assert planned.exit_code == 0, planned.output
        report = json.loads(planned.stdout)
        assert report["replicas_moved"] == PARTITIONS
        assert "broker 3 is not in the cluster any more: its replicas are replaced" in report["notes"]
        before = stream.sent
        done = run("apply", str(plan), *live, "--execute", *UNTHROTTLED, "--timeout", "120")
        assert done.exit_code == 0, (done.output, done.exception)
        assert wait_until(lambda: stream.sent > before + 100, timeout=60)
    finally:
        stream.stop()

    states = {key: state for key, state in fleet.partitions().items() if key.topic == "orders"}
    assert len(states) == PARTITIONS
    for state in states.values():
        assert set(state.replicas) == {1, 2, 4} == state.in_sync
        assert state.leader == state.replicas[0]
    leaders = [state.leader for state in states.values()]
    assert sorted(leaders.count(id) for id in (1, 2, 4)) == [2, 2, 2]
    assert stream.lost == 0
    for partition in range(PARTITIONS):
        assert read_all(kafka.brokers[0].bootstrap, "orders", partition, stream.sent) == list(range(stream.sent))
