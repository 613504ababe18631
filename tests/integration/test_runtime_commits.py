"""Commits that the broker does not answer or refuses, and intents that outlive the deduplication window."""

from __future__ import annotations

import copy
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from e2e.stack import Stack, StackSpec
from e2e.stack.kafka import BrokerPorts, KafkaBroker, KafkaClusterServers
from e2e.stack.tables import zookeeper_path
from tests.integration.kafka_proxy import OFFSET_COMMIT, Proxy
from tests.integration.runtime_pipeline import Loading, healed, loading

pytestmark = [pytest.mark.integration, pytest.mark.long]

STREAM = ("a", 0)
METADATA_BYTES = 450
"""What cluster a takes, half of what 40 tables need; the aggregators believe in Kafka's default of 4,096."""
WINDOW = 4


@dataclass(frozen=True)
class Proxied:
    loading: Loading
    proxy: Proxy
    broker: KafkaBroker


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """Cluster a is a broker that can be reached through a proxy only, cluster b that of the stack."""
    client, controller, sasl = _free_ports(3)
    proxy = Proxy(client)
    properties = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
        "offset.metadata.max.bytes": str(METADATA_BYTES),
    }
    folder = tmp_path_factory.mktemp("commits")
    peers = [BrokerPorts(client, controller, sasl)]
    spec = StackSpec(kafka_properties=properties)
    broker = KafkaBroker("kafka-p-1", folder / "kafka-p-1", spec=spec, node=1, peers=peers, dies_with_parent=True)
    stack = copy.copy(running_stack)
    stack.kafka = {"a": KafkaClusterServers("a", [broker]), "b": running_stack.kafka["b"]}
    try:
        broker.start()
        with loading(stack, folder, "commits", partitions=1) as found:
            yield Proxied(found, proxy, broker)
    finally:
        proxy.close()
        broker.kill()


@pytest.fixture
def pipeline(running: Proxied) -> Iterator[Loading]:
    with healed(running.loading) as found:
        yield found
    running.proxy.release()
    running.broker.start()


@pytest.fixture
def proxy(running: Proxied) -> Proxy:
    return running.proxy


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [entry.getsockname()[1] for entry in sockets]
    for entry in sockets:
        entry.close()
    return ports


def rejoins(pipeline: Loading) -> float:
    return sum(a.metric("blockhouse_rejoins_total") for a in pipeline.aggregators)


def taken_over(pipeline: Loading) -> int:
    name = pipeline.stream(*STREAM)
    return sum(len(a.logged("stream.taken_over", stream=name)) for a in pipeline.aggregators)


def closed(pipeline: Loading) -> int:
    name = pipeline.stream(*STREAM)
    return sum(len(a.logged("stream.closed", stream=name)) for a in pipeline.aggregators)


def test_a_commit_whose_reply_is_lost_is_read_again_under_a_new_member_id(pipeline: Loading, proxy: Proxy) -> None:
    table = pipeline.feed.table("reply_lost")
    pipeline.owner(*STREAM)
    before, starts = rejoins(pipeline), taken_over(pipeline)
    with pipeline.feed.flowing(table):
        proxy.hold_replies(OFFSET_COMMIT)
        assert proxy.held.wait(60)
        proxy.stop_holding()
        pipeline.wait("the rejoin", lambda: rejoins(pipeline) > before)
        pipeline.wait("the stream taken over again", lambda: taken_over(pipeline) > starts)
        proxy.release()
    pipeline.settle(table)


def test_a_commit_that_arrives_after_the_rejoin_changes_nothing(pipeline: Loading, proxy: Proxy) -> None:
    table = pipeline.feed.table("request_late")
    pipeline.owner(*STREAM)
    before, starts = rejoins(pipeline), taken_over(pipeline)
    with pipeline.feed.flowing(table):
        proxy.hold_requests(OFFSET_COMMIT)
        assert proxy.held.wait(60)
        proxy.stop_holding()
        pipeline.wait("the rejoin", lambda: rejoins(pipeline) > before)
        pipeline.wait("the stream taken over again", lambda: taken_over(pipeline) > starts)
        owner = pipeline.owner(*STREAM)
        seq = owner.stream(pipeline.stream(*STREAM)).seq
        pipeline.wait("new commits", lambda: (owner.stream(pipeline.stream(*STREAM)).seq or 0) > seq)
        proxy.release()
        assert proxy.delivered.wait(60)
    pipeline.settle(table)


def test_rounds_shrink_when_the_broker_takes_less_metadata_than_expected(pipeline: Loading) -> None:
    tables = [pipeline.feed.table(f"many_{number}") for number in range(40)]

    def refused() -> bool:
        return any(a.logged("stream.metadata_refused") for a in pipeline.aggregators)

    with ExitStack() as stopped:
        for table in tables:  # so that all of them are in flight at once
            stopped.enter_context(pipeline.fetches_stopped(table))
        pipeline.feed.send_one_of_each(tables, to=STREAM)
        pipeline.wait("the broker to refuse", refused)
    pipeline.settle(*tables, timeout=120)


def test_an_intent_that_left_the_deduplication_window_is_decided_by_provenance(
    pipeline: Loading, running: Proxied
) -> None:
    settings = {"replicated_deduplication_window": WINDOW, "cleanup_delay_period": 1}
    table = pipeline.feed.table("left_window", settings=settings)
    with pipeline.fetches_stopped(table):
        pipeline.feed.send(table, 10, to=[STREAM])
        pipeline.wait("its part written", lambda: pipeline.written_without_quorum(table))
        running.broker.kill()
        before = closed(pipeline)
    for number in range(1, 3 * WINDOW):
        pipeline.feed.send(table, 1, to=[("b", 0)])
        pipeline.wait(f"block {number} of cluster b", lambda: stored(pipeline, table, "b") == number)  # noqa: B023
    pipeline.wait("the window trimmed", lambda: len(remembered(pipeline, table)) <= WINDOW)
    # An owner that keeps its stream replays nothing when the broker is back: who takes over does.
    pipeline.wait("the owner to lose its stream", lambda: closed(pipeline) > before)
    running.broker.start()
    # Its counters begin with an owner, and this block is the only one that the next owner replays.
    pipeline.wait("the block decided by provenance", lambda: decided(pipeline) == 1)
    pipeline.settle(table, timeout=120)


def decided(pipeline: Loading) -> int:
    """Blocks that the stream's owner has found stored by their rows."""
    streams = (a.stream(pipeline.stream(*STREAM)) for a in pipeline.aggregators)
    return sum(stream.counters.by_provenance for stream in streams if stream is not None)


def stored(pipeline: Loading, table: str, cluster: str) -> int:
    """Messages of the cluster in the table."""
    sql = f"SELECT uniqExact(_kafka_partition, _kafka_offset) FROM {table} WHERE _kafka_cluster = '{cluster}'"
    return int(pipeline.stack.clickhouse[1, 1].execute(sql)[0][0])


def remembered(pipeline: Loading, table: str) -> list[str]:
    """The blocks whose hash ClickHouse still knows."""
    path = zookeeper_path("01", table.partition(".")[2]) + "/blocks"
    rows = pipeline.stack.clickhouse[1, 1].execute(f"SELECT name FROM system.zookeeper WHERE path = '{path}'")
    return [name for (name,) in rows]
