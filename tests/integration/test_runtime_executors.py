"""Tasks in executors of their own, as on a Spark cluster: nothing assumes one process or one host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.stack import Stack
from tests.integration.runtime_pipeline import Loading, loading

pytestmark = pytest.mark.integration

SETTINGS = {"spark": {"master": "local-cluster[2,1,1024]", "conf": {"spark.executor.memory": "512m"}}}


@pytest.fixture
def pipeline(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    folder = tmp_path_factory.mktemp("executors")
    with loading(stack, folder, "executors", aggregators=1, clusters=1, settings=SETTINGS) as found:
        yield found


def test_a_killed_executor_costs_a_replay_and_no_row(pipeline: Loading) -> None:
    table = pipeline.feed.table("executors")
    (aggregator,) = pipeline.aggregators
    with pipeline.feed.flowing(table):
        with pipeline.fetches_stopped(table):
            pipeline.wait("a block in flight", lambda: bool(aggregator.in_flight(table, "inserting")))
            pipeline.wait("its part written", lambda: pipeline.written_without_quorum(table))
            pipeline.wait("two executors", lambda: len(aggregator.members("executor")) == 2)
            for _ in range(2):  # the task of the block is in one of them
                aggregator.kill_member("executor", 1)
            pipeline.wait("the block to wait for its replay", lambda: bool(aggregator.in_flight(table, "replay")))
        pipeline.wait("the replay", lambda: aggregator.counter("replays") > 0)
    pipeline.settle(table, timeout=120)
    assert aggregator.logged("lease.failed")
