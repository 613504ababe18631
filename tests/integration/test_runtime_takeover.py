"""Aggregators that die, hang, come and go with blocks in flight: a stream's next owner completes exactly those."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack
from tests.integration.runtime_pipeline import Loading, eventually, healed_and_balanced, loading

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.clickhouse]

STREAM = ("a", 0)


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(running_stack, tmp_path_factory.mktemp("takeover"), "takeover") as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed_and_balanced(running) as found:
        yield found


def with_a_block_in_flight(pipeline: Loading, table: str) -> AggregatorProcess:
    """The owner of STREAM, once its replica has written a block of `table` that no other replica may fetch.

    The process that has the block in flight is the owner. The stream may still be moving when the block is sent:
    it is then the new owner that waits for the quorum, replaying it.
    """
    pipeline.feed.send(table, 20, to=[STREAM])
    aggregators = pipeline.pipeline.aggregators.values()
    pipeline.wait("a block in flight", lambda: any(a.in_flight(table, "inserting", "replay") for a in aggregators))
    pipeline.wait("its part written", lambda: pipeline.written_without_quorum(table))
    return pipeline.owner(*STREAM)


def test_rows_of_every_stream_arrive_once(pipeline: Loading) -> None:
    table = pipeline.feed.table("calm")
    pipeline.feed.send(table, 50)
    pipeline.settle(table)


def test_a_killed_owners_block_is_replayed_and_recognised_as_stored(pipeline: Loading) -> None:
    table = pipeline.feed.table("killed")
    other_table = pipeline.feed.table("killed_beside")
    with pipeline.fetches_stopped(table):
        victim = with_a_block_in_flight(pipeline, table)
        survivor = pipeline.peer(victim)
        before = recognised(survivor)
        victim.kill()
    pipeline.feed.send(table, 20)
    pipeline.feed.send(other_table, 20)
    assert pipeline.owner(*STREAM, other_than=victim) is survivor
    pipeline.settle(table, other_table)
    assert recognised(survivor) > before
    found = [entry.metadata for entry in survivor.history() if entry.metadata is not None]
    assert any(m.replica == victim.replica and [t.table for t in m.tables] == [table] for m in found)


def recognised(aggregator: AggregatorProcess) -> int:
    """Replayed blocks found to be stored: by the server, or by provenance where its tokens are younger than 30 s."""
    return aggregator.counter("deduplicated") + int(aggregator.metric("blockhouse_provenance_decisions_total"))


def test_a_frozen_owner_that_thaws_can_neither_commit_nor_insert_twice(pipeline: Loading) -> None:
    table, steady = pipeline.feed.table("frozen"), pipeline.feed.table("frozen_beside")
    with pipeline.feed.flowing(steady):
        with pipeline.fetches_stopped(table):
            zombie = with_a_block_in_flight(pipeline, table)
            survivor = pipeline.peer(zombie)
            zombie.freeze()
        assert pipeline.owner(*STREAM, other_than=zombie) is survivor
        pipeline.wait("the block replayed by the survivor", lambda: not survivor.in_flight(table, "replay"))
        held = pipeline.stream(*STREAM)
        seq = survivor.stream(held).seq
        pipeline.wait("the survivor's commits", lambda: (survivor.stream(held).seq or 0) > seq + 2)
        zombie.thaw()
        dropped = (
            "lost",
            "revoked",
            "UnknownMember",
        )  # whichever it hears first: of the group, or in answer to a commit
        assert eventually(
            lambda: any(line["why"] in dropped for line in zombie.logged("stream.closed", stream=held)), 30
        )
    pipeline.settle(table, steady)


def test_streams_move_with_blocks_in_flight_when_aggregators_leave_and_come(pipeline: Loading) -> None:
    table, stuck = pipeline.feed.table("moving"), pipeline.feed.table("moving_stuck")
    leaver = pipeline.owner(*STREAM)
    with pipeline.feed.flowing(table):
        with pipeline.fetches_stopped(stuck):
            assert with_a_block_in_flight(pipeline, stuck) is leaver
            leaver.terminate()
            pipeline.wait("the leaver to end", lambda: not leaver.alive)
        stayer = pipeline.owner(*STREAM, other_than=leaver)
        pipeline.wait("all streams with the stayer", lambda: len(stayer.streams()) == len(pipeline.feed.streams))
        leaver.start()
        pipeline.wait("streams to move back under load", lambda: len(leaver.streams()) == 2)
    pipeline.settle(table, stuck)


def test_a_dead_spark_ends_the_process_and_a_restart_continues(pipeline: Loading) -> None:
    table = pipeline.feed.table("spark")
    victim = pipeline.owner(*STREAM)
    with pipeline.feed.flowing(table):
        with pipeline.fetches_stopped(table):
            with_a_block_in_flight(pipeline, table)
            victim.kill_member("java")
            pipeline.wait("the process to end by itself", lambda: not victim.alive, 30)
        assert victim.exit_code == 70
        victim.start()
    pipeline.settle(table)


def test_killed_python_workers_are_replaced_and_their_blocks_replayed(pipeline: Loading) -> None:
    table = pipeline.feed.table("workers")
    with pipeline.feed.flowing(table):
        with pipeline.fetches_stopped(table):
            victim = with_a_block_in_flight(pipeline, table)
            replays = victim.counter("replays")
            victim.kill_member("worker")
            pipeline.wait("the block to wait for its replay", lambda: bool(victim.in_flight(table, "replay")))
        pipeline.wait("the replay", lambda: victim.counter("replays") > replays)
    pipeline.settle(table)
    assert victim.logged("lease.failed")


def test_all_aggregators_killed_at_once_lose_and_double_nothing(pipeline: Loading) -> None:
    table = pipeline.feed.table("both")
    with pipeline.feed.flowing(table):
        pipeline.wait("load", lambda: sum(a.counter("blocks") for a in pipeline.aggregators) > 0)
        for aggregator in pipeline.aggregators:
            aggregator.kill()
        pipeline.pipeline.heal()
    pipeline.settle(table)
