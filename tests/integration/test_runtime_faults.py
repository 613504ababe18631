"""Servers that are unavailable, hang or refuse: what can continue does, the rest resumes by itself, exactly once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blockhouse.contract.aggregator import CLUSTER_OK
from e2e.stack import Stack
from e2e.stack.clickhouse import ClickHouseServer
from tests.integration.runtime_pipeline import Loading, eventually, healed_and_balanced, loading

pytestmark = [pytest.mark.integration, pytest.mark.long]

STREAM = ("a", 0)
SETTINGS = {"kafka": {"sessionTimeout": "60s"}, "spark": {"lease": "10s"}, "logLevel": "debug"}
"""A session that outlasts a restart on a busy machine: nothing here is about taking over from the dead."""


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(running_stack, tmp_path_factory.mktemp("faults"), "faults", settings=SETTINGS) as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed_and_balanced(running) as found:
        yield found


def replica_of(pipeline: Loading, name: str) -> ClickHouseServer:
    return next(server for server in pipeline.stack.clickhouse.values() if server.replica == name)


def failures(pipeline: Loading, table: str, code: str) -> float:
    """Inserts of the table, of any aggregator, that ended with this ClickHouse code."""
    name = "blockhouse_insert_failures_total"
    return sum(a.metric(name, table=table, code=code) for a in pipeline.aggregators)


def live_replicas(pipeline: Loading, table: str) -> int:
    """Of the table, by ZooKeeper, as r1 knows it."""
    query = f"SELECT active_replicas FROM system.replicas WHERE table = '{table.split('.')[-1]}'"
    ((count,),) = replica_of(pipeline, "r1").execute(query)
    return int(count)


def behind(pipeline: Loading, table: str, streams: list[tuple[str, int]]) -> list[str]:
    """Those of the streams whose position is not beyond the table's last message."""
    positions = {s.stream: s.position or 0 for a in pipeline.aggregators for s in a.streams()}
    return [
        name
        for cluster, partition in streams
        if positions.get(name := pipeline.stream(cluster, partition), 0)
        <= pipeline.feed.offsets(table, (cluster, partition))[-1]
    ]


def test_a_table_whose_quorum_hangs_does_not_delay_the_others(pipeline: Loading) -> None:
    """319 when the peer does not fetch in time; 286 for any insert while that part waits."""
    stuck, flowing = pipeline.feed.table("quorum_hangs"), pipeline.feed.table("quorum_beside")
    with pipeline.fetches_stopped(stuck):
        pipeline.feed.send(stuck, 10)
        pipeline.wait("319 or 286", lambda: failures(pipeline, stuck, "319") + failures(pipeline, stuck, "286") >= 2)
        pipeline.feed.send(flowing, 20)
        pipeline.feed.wait_exact(flowing)
        assert pipeline.feed.differences(stuck)
    # Released: without any help the hanging table catches up.
    pipeline.settle(stuck, flowing)


def test_a_killed_replica_stops_the_shard_until_it_is_back(pipeline: Loading) -> None:
    """285 without a peer for the quorum; a lost socket and no connection for the aggregator of the dead replica.

    Nothing comes before ZooKeeper has missed the dead one: a part written meanwhile would wait for its quorum, and no
    other insert be tried behind it.
    """
    table = pipeline.feed.table("peer_killed")
    pipeline.feed.send(table, 10)
    pipeline.settle(table)
    replica_of(pipeline, "r2").kill()
    pipeline.wait("ZooKeeper to miss r2", lambda: live_replicas(pipeline, table) == 1)
    with pipeline.feed.flowing(table):
        pipeline.wait("285", lambda: failures(pipeline, table, "285") > 0)
        dead = pipeline.pipeline.aggregators["r2"]
        pipeline.wait("the streams of the dead replica handed over", lambda: not dead.streams())
        assert dead.alive
        replica_of(pipeline, "r2").start()
        pipeline.wait("the streams taken back", lambda: len(dead.streams()) == 2)
    pipeline.settle(table)


def test_frozen_zookeeper_makes_everything_wait_and_continue_by_itself(pipeline: Loading) -> None:
    table = pipeline.feed.table("zookeeper_frozen")
    with pipeline.feed.flowing(table):
        pipeline.wait("load", lambda: pipeline.feed.delivered > 100)
        pipeline.stack.zookeeper.freeze()
        pipeline.wait(
            "replicas to be found read-only or inserts to fail",
            lambda: all(a.logged("replica.unfit") or a.logged("block.waits") for a in pipeline.aggregators),
        )
        pipeline.stack.zookeeper.thaw()
    pipeline.settle(table, timeout=150)


def test_killed_zookeeper_the_same_and_a_table_that_is_new_meanwhile(pipeline: Loading) -> None:
    table, new = pipeline.feed.table("zookeeper_killed"), pipeline.feed.table("zookeeper_new")
    with pipeline.feed.flowing(table):
        pipeline.stack.zookeeper.kill()
        pipeline.feed.send(new, 5)
        pipeline.wait("the outage to show", lambda: all(a.logged("replica.hands_over") for a in pipeline.aggregators))
        pipeline.stack.zookeeper.start()
    pipeline.settle(table, new, timeout=150)
    assert all(a.alive and a.exit_code is None for a in pipeline.aggregators)


def test_one_dead_kafka_cluster_does_not_delay_the_other(pipeline: Loading) -> None:
    table = pipeline.feed.table("kafka_one")
    of_b = [stream for stream in pipeline.feed.streams if stream[0] == "b"]
    pipeline.feed.send(table, 20)
    pipeline.stack.kafka["a"].brokers[0].kill()
    assert eventually(lambda: all(a.clusters().get("a") != CLUSTER_OK for a in pipeline.aggregators))
    with pipeline.feed.flowing(table, to=of_b):
        pipeline.wait("more of b", lambda: pipeline.feed.delivered > 200)
    pipeline.feed.send(table, 1, to=of_b)
    pipeline.wait("every stream of b up to its end", lambda: behind(pipeline, table, of_b) == [])
    pipeline.stack.kafka["a"].brokers[0].start()
    pipeline.feed.send(table, 20)
    pipeline.settle(table)


def test_all_of_kafka_down_and_back(pipeline: Loading) -> None:
    table = pipeline.feed.table("kafka_all")
    pipeline.feed.send(table, 20)
    for cluster in pipeline.stack.kafka.values():
        cluster.brokers[0].kill()
    away = {"a", "b"}
    assert eventually(
        lambda: all({c for c, s in a.clusters().items() if s != CLUSTER_OK} == away for a in pipeline.aggregators)
    )
    for cluster in pipeline.stack.kafka.values():
        cluster.brokers[0].start()
    assert eventually(lambda: all(set(a.clusters().values()) == {CLUSTER_OK} for a in pipeline.aggregators))
    pipeline.feed.send(table, 20)
    pipeline.settle(table)
    assert all(a.exit_code is None for a in pipeline.aggregators)


def test_leases_change_under_load_without_a_trace(pipeline: Loading) -> None:
    """SETTINGS make a lease 10 s short."""
    table = pipeline.feed.table("leases")
    aggregator = pipeline.owner(*STREAM)
    replays = aggregator.counter("replays")
    over = len(aggregator.logged("lease.over", stream=pipeline.stream(*STREAM)))
    with pipeline.feed.flowing(table):
        pipeline.wait(
            "two changes of the lease",
            lambda: len(aggregator.logged("lease.over", stream=pipeline.stream(*STREAM))) >= over + 2,
        )
    pipeline.settle(table)
    assert aggregator.counter("replays") == replays


def test_an_orderly_end_leaves_nothing_in_flight_and_a_restart_moves_no_stream(pipeline: Loading) -> None:
    table = pipeline.feed.table("orderly")
    leaver = pipeline.owner(*STREAM)
    stayer = pipeline.peer(leaver)
    pipeline.wait("an even share", lambda: len(stayer.streams()) == 2)
    kept = {stream.stream: stream.epoch for stream in stayer.streams()}
    before = len(leaver.logged("stream.taken_over"))
    with pipeline.feed.flowing(table):
        pipeline.wait("load", lambda: not pipeline.feed.differences(table) or leaver.counter("blocks") > 3)
        leaver.terminate()
        pipeline.wait("the end within its budget", lambda: not leaver.alive, timeout=60)
        assert leaver.exit_code == 0
        leaver.start()
        pipeline.wait("its streams back", lambda: len(leaver.logged("stream.taken_over")) >= before + 2)
        assert [line["replays"] for line in leaver.logged("stream.taken_over")[before:]] == [0, 0]
    assert {stream.stream: stream.epoch for stream in stayer.streams()} == kept
    pipeline.settle(table)
