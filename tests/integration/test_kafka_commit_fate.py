"""Commits whose answer does not come: nothing of them may appear after the stream was read again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from confluent_kafka import Producer
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from blockhouse.errors import Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.group import Committed
from blockhouse_aggregator.kafka.member import GroupMember
from blockhouse_aggregator.protocol.commits import APPLIED, CommitOutcome, Unknown
from e2e.stack import StackSpec
from e2e.stack.kafka import BrokerPorts, KafkaBroker, KafkaClusterServers
from tests.integration.conftest import Names
from tests.integration.kafka_proxy import FETCH, JOIN_GROUP, OFFSET_COMMIT, Proxy
from tests.integration.kafka_recorder import member, settings_of

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaClusterServers, Proxy]]:
    """A broker that clients reach through a proxy only."""
    client, controller, sasl = _free_ports(3)
    proxy = Proxy(client)
    spec = StackSpec(kafka_properties={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"})
    folder = tmp_path_factory.mktemp("proxied") / "kafka-p-1"
    peers = [BrokerPorts(client, controller, sasl)]
    broker = KafkaBroker("kafka-p-1", folder, spec=spec, node=1, peers=peers, dies_with_parent=True)
    try:
        broker.start()
        yield KafkaClusterServers("p", [broker]), proxy
    finally:
        proxy.close()
        broker.kill()


@pytest.fixture
def cluster(proxied: tuple[KafkaClusterServers, Proxy]) -> Iterator[KafkaClusterServers]:
    yield proxied[0]
    proxied[1].release()
    proxied[0].brokers[0].start()


@pytest.fixture
def proxy(proxied: tuple[KafkaClusterServers, Proxy]) -> Proxy:
    return proxied[1]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [entry.getsockname()[1] for entry in sockets]
    for entry in sockets:
        entry.close()
    return ports


def _unknown(commit: Future[CommitOutcome]) -> bool:
    return isinstance(commit.result(60), Unknown)


@retry(retry=retry_if_exception_type(Retryable), wait=wait_fixed(0.1), stop=stop_after_delay(30), reraise=True)
def _answered(subject: GroupMember, stream: StreamId, epoch: int) -> Committed:
    """A broker that was unavailable may answer for a while that it coordinates nothing."""
    return subject.committed(stream, epoch).result(60)


def test_an_assigned_stream_fetches_no_data(cluster: KafkaClusterServers, proxy: Proxy, names: Names) -> None:
    cluster.create_topic(names.topic, partitions=1)
    endpoint, kafka = settings_of(cluster.bootstrap, names.topic, names.group)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    instance = names.unique("r")
    with member(endpoint, kafka, instance) as (subject, heard):
        ((stream, epoch),) = heard.owns(1).items()
        for number in range(50):  # traffic, so that a fetch would find something
            producer.produce(names.topic, b"x" * 1000, partition=0)
            producer.flush(10)
            assert subject.commit(stream, epoch, number, "").result(60) == APPLIED
    assert proxy.requests[f"blockhouse-{instance}", OFFSET_COMMIT] == 50
    assert proxy.requests[f"blockhouse-{instance}", FETCH] == 0


def test_a_request_that_arrives_late_is_applied_while_no_member_has_rejoined(
    cluster: KafkaClusterServers, proxy: Proxy, names: Names
) -> None:
    cluster.create_topic(names.topic, partitions=1)
    endpoint, kafka = settings_of(cluster.bootstrap, names.topic, names.group, commit_timeout=30)
    with member(endpoint, kafka, "r1") as (subject, heard):
        ((stream, epoch),) = heard.owns(1).items()
        proxy.hold_requests(OFFSET_COMMIT)
        late = subject.commit(stream, epoch, 20, "late")
        assert proxy.held.wait(60)
        proxy.release()
        assert late.result(60) == APPLIED
        assert subject.committed(stream, epoch).result(60) == Committed(20, "late")


def test_a_request_that_arrives_after_the_rejoin_changes_nothing(
    cluster: KafkaClusterServers, proxy: Proxy, names: Names
) -> None:
    cluster.create_topic(names.topic, partitions=2)
    endpoint, kafka = settings_of(cluster.bootstrap, names.topic, names.group)
    with member(endpoint, kafka, "r1") as (subject, heard):
        before = heard.owns(2)
        stream, epoch = next(iter(before.items()))
        assert subject.commit(stream, epoch, 10, "ten").result(60) == APPLIED
        proxy.hold_requests(OFFSET_COMMIT)

        late = subject.commit(stream, epoch, 20, "late")
        assert proxy.held.wait(60)
        proxy.stop_holding()
        assert _unknown(late)
        assert heard.drops == ["rejoin", "rejoin"]  # every stream of the member, before the answer
        again = heard.owns(2)
        assert min(again.values()) > max(before.values())
        assert subject.committed(stream, again[stream]).result(60) == Committed(10, "ten")

        proxy.release()
        assert proxy.delivered.wait(60)  # the broker has the late request now, before the next one
        assert subject.committed(stream, again[stream]).result(60) == Committed(10, "ten")
        assert subject.commit(stream, again[stream], 11, "eleven").result(60) == APPLIED
        assert subject.committed(stream, again[stream]).result(60) == Committed(11, "eleven")


def test_a_swallowed_reply_is_unknown_and_the_commit_is_found_by_reading(
    cluster: KafkaClusterServers, proxy: Proxy, names: Names
) -> None:
    cluster.create_topic(names.topic, partitions=1)
    endpoint, kafka = settings_of(cluster.bootstrap, names.topic, names.group)
    with member(endpoint, kafka, "r1") as (subject, heard):
        ((stream, epoch),) = heard.owns(1).items()
        proxy.hold_replies(OFFSET_COMMIT)
        commit = subject.commit(stream, epoch, 20, "applied")
        assert proxy.held.wait(60)
        proxy.stop_holding()
        assert _unknown(commit)
        again = heard.owns(1)[stream]
        assert subject.committed(stream, again).result(60) == Committed(20, "applied")
        proxy.release()
        assert subject.commit(stream, again, 21, "next").result(60) == APPLIED


def test_a_frozen_broker_is_reported_and_a_commit_of_that_time_cannot_land_after_the_rejoin(
    cluster: KafkaClusterServers, names: Names
) -> None:
    cluster.create_topic(names.topic, partitions=1)
    endpoint, kafka = settings_of(cluster.bootstrap, names.topic, names.group)
    with member(endpoint, kafka, "r1") as (subject, heard):
        ((stream, epoch),) = heard.owns(1).items()
        assert subject.commit(stream, epoch, 10, "ten").result(60) == APPLIED
        cluster.brokers[0].freeze()
        commit = subject.commit(stream, epoch, 20, "frozen")
        assert _unknown(commit)
        heard.wait(lambda: heard.failures != [])
        cluster.brokers[0].thaw()
        again = heard.owns(1)[stream]
        heard.wait(lambda: heard.recoveries == 1)
        first = _answered(subject, stream, again)
        assert first in (Committed(10, "ten"), Committed(20, "frozen"))
        for _ in range(50):
            assert _answered(subject, stream, again) == first


def test_a_member_that_rejoins_too_late_commits_nothing_of_what_it_held(
    cluster: KafkaClusterServers, proxy: Proxy, names: Names
) -> None:
    """Its request to join arrives after its session, and the client joins under a new id with all that it held."""
    cluster.create_topic(names.topic, partitions=1)
    endpoint, kafka = settings_of(cluster.bootstrap, names.topic, names.group, session_timeout=6, commit_timeout=60)
    with member(endpoint, kafka, "late") as (late, late_heard):
        ((stream, epoch),) = late_heard.owns(1).items()
        assert late.commit(stream, epoch, 10, "ten").result(60) == APPLIED
        proxy.hold_requests(JOIN_GROUP, client="blockhouse-late")
        with member(endpoint, kafka, "other") as (other, other_heard):
            assert proxy.held.wait(60)
            owned = other_heard.owns(1)[stream]
            assert other.commit(stream, owned, 30, "of the new owner").result(60) == APPLIED

            late_heard.settled = Future()
            proxy.release()
            late_heard.wait(lambda: len(late_heard.events) > 1)
            outcome = late.commit(stream, epoch, 20, "of the former owner").result(60)
            late_heard.settled.set_result(None)
            assert outcome != APPLIED
            late_heard.wait(lambda: late_heard.drops != [])
            assert other.committed(stream, other_heard.owns(1)[stream]).result(60) == Committed(30, "of the new owner")
