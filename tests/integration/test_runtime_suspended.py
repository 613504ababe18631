"""A suspended shard, or a drained aggregator, owns nothing, also after a restart; resumed, it is exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.stack import Stack
from tests.integration.runtime_pipeline import Loading, loading

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("switch") / "suspend"


@pytest.fixture(scope="module")
def pipeline(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory, switch: Path) -> Iterator[Loading]:
    folder = tmp_path_factory.mktemp("suspended")
    with loading(running_stack, folder, "suspended", settings={"suspendFile": str(switch)}) as found:
        yield found


def suspended(pipeline: Loading) -> bool:
    pages = [aggregator.status() for aggregator in pipeline.aggregators]
    return all(page is not None and page.suspended and not page.streams for page in pages)


def stored(pipeline: Loading, table: str) -> int:
    (count,) = pipeline.stack.clickhouse[1, 1].execute(f"SELECT count() FROM {table}")[0]
    return int(count)


def inserting(pipeline: Loading, table: str) -> bool:
    sql = f"SELECT count() FROM system.processes WHERE query LIKE 'INSERT INTO%{table.partition('.')[2]}%'"
    return any(server.execute(sql) != [(0,)] for server in pipeline.stack.clickhouse.values())


def test_under_load_it_stops_stays_stopped_through_a_restart_and_resumes_exactly(
    pipeline: Loading, switch: Path
) -> None:
    table = pipeline.feed.table("events")
    with pipeline.feed.flowing(table):
        pipeline.wait("rows", lambda: stored(pipeline, table) > 0, timeout=180)
        switch.write_text("true\n")
        pipeline.wait("no stream is owned", lambda: suspended(pipeline), timeout=180)
        restarted = pipeline.aggregators[0]
        restarted.kill()
        restarted.start(wait=False)
        pipeline.wait(
            "the restarted one is ready", lambda: (page := restarted.status()) is not None and page.ready, timeout=300
        )
        pipeline.wait("inserts under way have ended", lambda: not inserting(pipeline, table))
        before = stored(pipeline, table)
        delivered = pipeline.feed.delivered
        pipeline.wait("much is produced", lambda: pipeline.feed.delivered > delivered + 500, timeout=180)
        assert suspended(pipeline)
        assert stored(pipeline, table) == before
        switch.write_text("false\n")
        pipeline.wait("it loads again", lambda: stored(pipeline, table) > before, timeout=180)
    pipeline.settle(table, timeout=180)


def test_a_drained_aggregator_leaves_its_streams_to_the_other_and_stays_drained_through_a_restart(
    pipeline: Loading,
) -> None:
    table = pipeline.feed.table("drained")
    pipeline.wait("both own streams", pipeline.balanced)
    drained, other = pipeline.aggregators
    with pipeline.feed.flowing(table):
        pipeline.wait("rows", lambda: stored(pipeline, table) > 0)
        drained.drain("a test", "to see it leave")
        pipeline.wait("it owns nothing", lambda: (state := drained.drain_state()).drained and state.streams == 0)
        pipeline.wait("the other has all", lambda: len(other.streams()) == len(pipeline.feed.streams))
        page = drained.status()
        assert page is not None
        assert (page.ready, page.away) == (True, "drained: to see it leave (a test)")
        drained.kill()
        drained.start(wait=False)
        pipeline.wait("it is ready", drained.answers, timeout=300)
        assert drained.drain_state().drained
        assert not drained.streams()
        drained.resume("a test")
        pipeline.wait("both own streams again", pipeline.balanced)
    pipeline.settle(table)
