"""Names of tables that are none: their messages wait, and hold back nothing else. Nothing here comes to rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from blockhouse.contract.aggregator import Phase
from e2e.stack import Stack
from e2e.stack.tables import PROVENANCE
from tests.integration.runtime_pipeline import Loading, healed, loading, neighbour_flows
from tests.integration.test_bug_reports import STREAM, json_headers

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(running_stack, tmp_path_factory.mktemp("names"), "names", aggregators=1, clusters=1) as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        yield found


ENGINES = {
    "view": "CREATE VIEW {name} AS SELECT * FROM {behind}",
    "merge": "CREATE TABLE {name} ({columns}) ENGINE = Merge(default, '^{behind}$')",
    "buffer": "CREATE TABLE {name} ({columns}) ENGINE = Buffer(default, {behind}, 1, 1, 2, 1, 2, 1, 2)",
    "distributed": "CREATE TABLE {name} ({columns}) ENGINE = Distributed(blockhouse, default, {behind})",
    "memory": "CREATE TABLE {name} ({columns}) ENGINE = Memory",
    "nothing": "CREATE TABLE {name} ({columns}) ENGINE = Null",
}


def test_a_name_that_is_no_table_of_rows_waits_and_the_others_flow(pipeline: Loading) -> None:
    feed, server = pipeline.feed, pipeline.stack.clickhouse[1, 1]
    behind = feed.table("behind_them", "id UInt64, text String")
    (aggregator,) = pipeline.aggregators
    for engine, ddl in ENGINES.items():
        name = f"named_{engine}"
        columns = f"id UInt64, text String, {PROVENANCE}"
        server.execute(ddl.format(name=name, behind="behind_them", columns=columns))
        feed.raw(b'{"id": 1, "text": "x"}', json_headers(f"default.{name}"), to=STREAM)
    neighbour_flows(pipeline, behind)
    feed.send(behind, 3)
    feed.wait_exact(behind)
    names = [f"default.named_{engine}" for engine in ENGINES]
    pipeline.wait("all of them held", lambda: all(_held(aggregator, name) for name in names))
    stream = aggregator.stream(pipeline.stream(*STREAM))
    assert stream is not None
    assert stream.state is Phase.CONSUME
    assert not stream.blocks


def test_quoted_and_odd_names_of_a_table_wait_as_tables_of_their_own(pipeline: Loading) -> None:
    feed = pipeline.feed
    table = feed.table("plain")
    (aggregator,) = pipeline.aggregators
    names = [f'"{table}"', f" {table}", f"{table}\n", "`default`.`plain`", table.upper()]
    for name in names:
        feed.raw(b'{"id": 1, "text": "x"}', json_headers(name), to=STREAM)
    feed.send(table, 3)
    neighbour_flows(pipeline, table)
    feed.wait_exact(table)
    stream = aggregator.stream(pipeline.stream(*STREAM))
    assert stream is not None
    assert stream.state is Phase.CONSUME
    waiting = {name for name, known in aggregator.tables().items() if known.held == "UnknownTable"}
    assert any("plain" in name.lower() for name in waiting), waiting


def _held(aggregator: Any, table: str) -> bool:
    status = aggregator.tables().get(table)
    return status is not None and status.held.startswith("UnsupportedEngine")
