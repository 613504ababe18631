"""Load of real brokers: known amounts written between two looks, faults of brokers and topics, Cruise Control.

Three brokers; rates are compared with what was written, not with time: the window is part of the sample.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.kafka_client import KafkaRequests
from blockhouse.fleet.load.cli import app
from blockhouse.fleet.load.cluster import LiveNames
from blockhouse.fleet.load.cruise_control import RAW_TOPIC, CruiseControlSource
from blockhouse.fleet.load.sampled import SampledSource
from blockhouse.fleet.load.settings import CruiseControlSettings
from blockhouse.load.model import ProblemKind, Quality, Sample
from blockhouse.placement.model import TopicPartition
from e2e.stack import StackSpec
from e2e.stack.kafka import KafkaBroker, KafkaClusterServers, broker_ports
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

NODES = (1, 2, 3)
SMALL_FETCHES = {"replica.fetch.max.bytes": "65536", "replica.fetch.response.max.bytes": "65536"}
RECORD = 10_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaClusterServers]:
    folder, ports = tmp_path_factory.mktemp("load"), Ports()
    names = {node: f"kafka-load-{node}" for node in NODES}
    peers = [broker_ports(ports, name) for name in names.values()]
    spec = StackSpec(kafka_properties=SMALL_FETCHES)
    brokers = [
        KafkaBroker(name, folder / name, spec=spec, node=node, peers=peers, dies_with_parent=True)
        for node, name in names.items()
    ]
    try:
        with ThreadPoolExecutor(len(brokers)) as pool:
            list(pool.map(KafkaBroker.start, brokers))
        yield KafkaClusterServers("load", brokers)
    finally:
        for broker in brokers:
            broker.kill()
        ports.release()


@pytest.fixture
def cluster(kafka: KafkaClusterServers) -> KafkaCluster:
    return KafkaCluster(name="load", bootstrap_servers=kafka.bootstrap)


@pytest.fixture
def source(cluster: KafkaCluster) -> Iterator[SampledSource]:
    with SampledSource(cluster) as source:
        yield source


def create(kafka: KafkaClusterServers, topic: str, replicas: list[list[int]], config: Mapping[str, str] = {}) -> None:
    """A topic with these replicas of its partitions."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    new = NewTopic(topic, num_partitions=len(replicas), replica_assignment=replicas, config=dict(config))
    admin.create_topics([new])[topic].result(timeout=60)
    with KafkaFleet(KafkaCluster(name="load", bootstrap_servers=kafka.bootstrap)) as fleet:
        assert wait_until(lambda: len([k for k in fleet.partitions() if k.topic == topic]) == len(replicas), timeout=60)


def write(
    kafka: KafkaClusterServers, topic: str, counts: Mapping[int, int], size: int = RECORD, *, seconds: float = 0
) -> None:
    """So many records of `size` bytes to each partition, spread over `seconds`, all acknowledged."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, "log_level": 0})
    begin, total, sent = time.monotonic(), sum(counts.values()), 0
    for n in range(max(counts.values())):
        for partition in (partition for partition, count in counts.items() if n < count):
            producer.produce(topic, b"x" * size, key=str(n), partition=partition)
            sent += 1
        producer.poll(0)
        while (left := begin + seconds * sent / total - time.monotonic()) > 0:
            producer.poll(left)  # an acknowledgement ends it early
    assert producer.flush(60) == 0


def sampled(source: SampledSource) -> Sample:
    sample = source.sample()
    assert sample is not None
    return sample


def test_rates_of_a_skewed_load_are_those_that_were_written(kafka: KafkaClusterServers, source: SampledSource) -> None:
    """Two partitions of one topic on one broker, 9 to 1: an even split of the topic's rate would give 5 to 5."""
    create(kafka, "skewed", [[1, 2], [1, 2], [2, 3]])
    write(kafka, "skewed", {0: 1000, 1: 1000, 2: 1000})
    assert source.sample() is None
    write(kafka, "skewed", {0: 900, 1: 100}, seconds=3)
    sample = sampled(source)
    bytes = [sample.partitions[TopicPartition("skewed", n)].bytes * sample.window for n in range(3)]
    messages = [sample.partitions[TopicPartition("skewed", n)].messages for n in range(3)]
    assert bytes == [pytest.approx(900 * RECORD, rel=0.05), pytest.approx(100 * RECORD, rel=0.05), 0]
    assert [round((rate or 0.0) * sample.window) for rate in messages] == [900, 100, 0]
    assert sample.problems == ()
    total = 1000 * RECORD / sample.window
    assert sample.brokers[1].rx == pytest.approx(total, rel=0.05)
    assert sample.brokers[1].tx == pytest.approx(total, rel=0.05)
    assert sample.brokers[2].rx == pytest.approx(total, rel=0.05)
    assert sample.brokers[3].rx == pytest.approx(0, abs=0.01 * total)


def test_what_a_group_reads_is_sent_by_the_leader(kafka: KafkaClusterServers, source: SampledSource) -> None:
    create(kafka, "read", [[3]])
    write(kafka, "read", {0: 2000})
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[Offset("read", 0, 500)], asynchronous=False)
        source.sample()
        consumer.commit(offsets=[Offset("read", 0, 1500)], asynchronous=False)
        sample = sampled(source)
    finally:
        consumer.close()
    sent = sample.brokers[3].tx
    assert sent is not None
    assert sent * sample.window == pytest.approx(1000 * RECORD, rel=0.05)
    assert sample.brokers[3].quality is Quality.ESTIMATED


def test_a_topic_that_was_created_again_has_no_rate_once(kafka: KafkaClusterServers, source: SampledSource) -> None:
    create(kafka, "again", [[1]])
    write(kafka, "again", {0: 20})
    source.sample()
    with KafkaFleet(KafkaCluster(name="load", bootstrap_servers=kafka.bootstrap)) as fleet:
        fleet.delete_topic("again")
        assert wait_until(lambda: "again" not in fleet.topic_ids(), timeout=60)
    create(kafka, "again", [[1]])
    write(kafka, "again", {0: 200})
    sample = sampled(source)
    assert TopicPartition("again", 0) not in sample.partitions
    assert [(p.kind, p.subject) for p in sample.problems] == [(ProblemKind.RESET, "topic again")]
    assert TopicPartition("again", 0) in sampled(source).partitions


def test_a_compacted_topic_is_an_estimate(kafka: KafkaClusterServers, source: SampledSource) -> None:
    create(kafka, "compacted", [[2]], {"cleanup.policy": "compact"})
    write(kafka, "compacted", {0: 2000}, size=100)
    source.sample()
    # Sizes are read later than offsets, and their interval differs from the window by what a busy broker takes.
    write(kafka, "compacted", {0: 100}, seconds=5)
    sample = sampled(source)
    load = sample.partitions[TopicPartition("compacted", 0)]
    assert load.quality is Quality.ESTIMATED
    assert load.bytes * sample.window == pytest.approx(100 * RECORD, rel=0.15)


def arrived_on(fleet: KafkaFleet, key: TopicPartition, broker: int) -> int:
    """Bytes of the partition that the broker has."""
    found = fleet.storage().replicas.get((key, broker))
    return found.size if found else 0


def test_what_a_reassignment_copies_is_distinguished(kafka: KafkaClusterServers, cluster: KafkaCluster) -> None:
    """A replica arrives on broker 3 at 2 MB/s at most; no producer writes meanwhile."""
    create(kafka, "moving", [[1]])
    write(kafka, "moving", {0: 3000})
    key = TopicPartition("moving", 0)
    with KafkaFleet(cluster) as fleet, SampledSource(cluster) as source:
        fleet.change_topic("moving", {"follower.replication.throttled.replicas": "0:3"})
        fleet.change_broker(3, {"follower.replication.throttled.rate": "2000000"})
        assert fleet.reassign({key: (1, 3)}) == {}
        assert wait_until(lambda: arrived_on(fleet, key, 3) > 0, timeout=60)
        source.sample()
        before = arrived_on(fleet, key, 3)
        assert wait_until(lambda: arrived_on(fleet, key, 3) > before + 3e6, timeout=60)
        sample = sampled(source)
        fleet.change_broker(3, {}, ["follower.replication.throttled.rate"])
        fleet.change_topic("moving", {}, ["follower.replication.throttled.replicas"])
        assert wait_until(lambda: not fleet.moves(), timeout=60)
    assert sample.partitions[key].bytes == 0
    arrived, left = sample.brokers[3], sample.brokers[1]
    assert arrived.moved_in == left.moved_out
    assert arrived.moved_in is not None
    assert 0.5e6 < arrived.moved_in < 4e6
    assert arrived.rx == pytest.approx(arrived.moved_in, rel=0.1)


def test_a_dead_broker_costs_only_what_it_leads(kafka: KafkaClusterServers, cluster: KafkaCluster) -> None:
    create(kafka, "alone", [[3], [2]])
    # A log of so many records is measured by its mean record. The growth of a short one is of another interval than
    # the window, and the two differ by what a busy broker takes to answer.
    write(kafka, "alone", {0: 20, 1: 1000})
    broker = kafka.brokers[2]
    with SampledSource(cluster) as source:
        source.sample()
        source.sample()  # a mean is known from the second look on
        broker.kill()
        try:
            write(kafka, "alone", {1: 500})
            with KafkaFleet(cluster) as fleet:
                assert wait_until(lambda: 3 not in fleet.brokers(), timeout=60)
            sample = sampled(source)
        finally:
            broker.start()
    assert TopicPartition("alone", 0) not in sample.partitions
    assert sample.partitions[TopicPartition("alone", 1)].bytes * sample.window == pytest.approx(500 * RECORD, rel=0.05)
    assert 3 not in sample.brokers
    named = {problem.subject for problem in sample.problems}
    assert "topic alone" in named, sample.problems


def test_a_frozen_broker_is_named_and_the_others_are_measured(
    kafka: KafkaClusterServers, cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is alive for the others until its session ends, and answers nothing."""
    monkeypatch.setattr("blockhouse.fleet.load.looks.REQUEST_TIMEOUT_MS", 1500)
    create(kafka, "frozen", [[3], [2]])
    write(kafka, "frozen", {0: 20, 1: 20})
    broker = kafka.brokers[2]
    with SampledSource(cluster) as source:
        source.sample()
        write(kafka, "frozen", {1: 500})
        broker.freeze()
        try:
            sample = sampled(source)
        finally:
            broker.thaw()
    assert TopicPartition("frozen", 1) in sample.partitions
    assert TopicPartition("frozen", 0) not in sample.partitions
    assert any("3" in problem.subject or "frozen" in problem.subject for problem in sample.problems), sample.problems


def test_a_frozen_bootstrap_server_does_not_hide_the_others(
    kafka: KafkaClusterServers, cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the client may choose, it chooses that one."""
    frozen = kafka.brokers[2]
    port = int(frozen.bootstrap.rsplit(":", 1)[1])

    def unlucky(servers: Sequence[Any]) -> Any:
        return next((server for server in servers if server.port == port), servers[0])

    monkeypatch.setattr("kafka.net.manager.random.choice", unlucky)
    requests = KafkaRequests(cluster, request_timeout_ms=1500)
    frozen.freeze()
    try:
        assert len(requests.ask("describe_cluster")["brokers"]) >= 2
    finally:
        frozen.thaw()
        requests.close()


def test_no_cluster_at_all_may_be_asked_again(cluster: KafkaCluster) -> None:
    nowhere = cluster.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    with SampledSource(nowhere) as source, pytest.raises(Retryable, match=r"127\.0\.0\.1:1"):
        source.sample()


def test_the_command_shows_and_explains(kafka: KafkaClusterServers, cluster: KafkaCluster) -> None:
    create(kafka, "shown", [[1], [2]])
    write(kafka, "shown", {0: 10, 1: 10})
    server = ["--bootstrap-server", cluster.bootstrap_servers]
    result = CliRunner().invoke(app, ["show", *server, "--window", "1", "--topics", "sho.*", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["source"] == "sampled"
    assert document["partitions"] == {
        "shown": {n: {"bytes": 0.0, "messages": 0.0, "quality": "measured"} for n in ("0", "1")}
    }
    explained = CliRunner().invoke(app, ["explain", "shown", *server, "--window", "1"])
    assert explained.exit_code == 0, explained.output
    assert "2 partitions: measured" in explained.output
    misspelt = CliRunner().invoke(app, ["explain", "showm", *server, "--window", "1"])
    assert "did you mean shown" in str(misspelt.exception)
    watched = CliRunner().invoke(app, ["watch", *server, "--every", "1", "--count", "2", "--topics", "shown"])
    assert watched.exit_code == 0, watched.output
    assert watched.output.count("source sampled") == 2


def partition_sample(topic: str, partition: int, kilobytes: float, at: float, *, version: int = 1) -> bytes:
    """A record of Cruise Control's sample store: bytes in is the third figure, messages in the seventh."""
    figures = [1.0, 2.0, kilobytes, 3.0] + ([4.0, 5.0, 70.0, 6.0, 7.0] if version else [])
    head = struct.pack(f">bi{len(figures)}dqi", version, 1, *figures, int(at * 1000), partition)
    return head + topic.encode()


def raw_metric(type: int, broker: int, value: float, at: float, topic: str | None = None) -> bytes:
    named = b"" if topic is None else struct.pack(">i", len(topic)) + topic.encode()
    return (
        struct.pack(">bbbqi", 0 if topic is None else 1, 0, type, int(at * 1000), broker)
        + named
        + struct.pack(">d", value)
    )


def test_cruise_controls_samples_are_read(kafka: KafkaClusterServers, cluster: KafkaCluster) -> None:
    store = "cc-samples"
    create(kafka, "sampled.by.cc", [[1], [1], [2]])
    create(kafka, store, [[1], [2]])
    now = time.time()
    records = [
        partition_sample("sampled.by.cc", 0, 1.0, now - 300),
        partition_sample("sampled.by.cc", 0, 50.0, now - 30),
        partition_sample("sampled.by.cc", 1, 20.0, now - 30, version=0),
        partition_sample("sampled.by.cc", 2, 9.0, now - 5000),
        partition_sample("gone", 0, 9.0, now - 30),
        b"\x07damaged",
    ]
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for n, record in enumerate(records):
        producer.produce(store, record, partition=n % 2)
    assert producer.flush(30) == 0
    names = LiveNames(cluster)
    settings = CruiseControlSettings(topic=store, lookback=600)
    sample = CruiseControlSource(settings, cluster, names).sample()
    loads = {key.partition: load for key, load in sample.partitions.items()}
    assert {n: (load.bytes, load.messages) for n, load in loads.items()} == {0: (50 * 1024, 70.0), 1: (20 * 1024, None)}
    assert {load.quality for load in loads.values()} == {Quality.ESTIMATED}
    assert sample.at == pytest.approx(now - 30, abs=0.01)
    texts = " ".join(map(str, sample.problems))
    assert "version 7" in texts
    assert "no rate of partitions of" in texts
    assert "gone" in texts
    names.close()


def test_cruise_controls_raw_metrics_are_an_even_split(kafka: KafkaClusterServers, cluster: KafkaCluster) -> None:
    create(kafka, "with.dots", [[1], [1], [2]])
    create(kafka, RAW_TOPIC, [[1]])
    now = time.time()
    records = [
        raw_metric(2, 1, 100.0, now - 10, "with_dots"),
        raw_metric(15, 1, 4.0, now - 10, "with_dots"),
        raw_metric(2, 2, 7.0, now - 10, "with_dots"),
        raw_metric(0, 1, 1000.0, now - 10),
        raw_metric(6, 1, 500.0, now - 10),
        raw_metric(1, 1, 200.0, now - 10),
    ]
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for record in records:
        producer.produce(RAW_TOPIC, record)
    assert producer.flush(30) == 0
    names = LiveNames(cluster)
    sample = CruiseControlSource(CruiseControlSettings(topic=RAW_TOPIC), cluster, names).sample()
    found = {key.partition: load.bytes for key, load in sample.partitions.items() if key.topic == "with.dots"}
    assert found == {0: 50.0, 1: 50.0, 2: 7.0}
    assert sample.partitions[TopicPartition("with.dots", 0)].messages == 2.0
    assert (sample.brokers[1].rx, sample.brokers[1].tx) == (1500.0, 200.0)
    names.close()


def test_cruise_control_that_is_silent_or_absent_is_reported(kafka: KafkaClusterServers, cluster: KafkaCluster) -> None:
    create(kafka, "cc-silent", [[1]])
    names = LiveNames(cluster)
    with pytest.raises(Retryable, match="no record of the last 600 s"):
        CruiseControlSource(CruiseControlSettings(topic="cc-silent"), cluster, names).sample()
    with pytest.raises(Permanent, match="has no topic cc-missing"):
        CruiseControlSource(CruiseControlSettings(topic="cc-missing"), cluster, names).sample()
    names.close()
