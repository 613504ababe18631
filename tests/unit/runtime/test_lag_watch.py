"""Since when messages of a table wait, and what the watch shows of the replica."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from blockhouse.metadata.model import InFlight, Window
from blockhouse.streams import StreamId
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState
from blockhouse_aggregator.runtime.lag_figures import LagFigures
from blockhouse_aggregator.runtime.process.lag_watch import LagWatch
from blockhouse_aggregator.runtime.stream.reporting import Counters

STREAM = StreamId("a", "events", 0)
TABLE = 7
LAGS = TableState(TABLE, cursor=10, pending=2)


class Watching:
    """A watch of one stream, at a time of the test's."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.unfit = ""
        self.registry = CollectorRegistry()
        blocks = SimpleNamespace(max_age=1.0, tables={})
        catalog = SimpleNamespace(name=lambda table: "d.t", known=lambda name: None)
        self.owner: Any = SimpleNamespace(
            stream=STREAM,
            state=None,
            stop=None,
            committed=None,
            log_end=0,
            awaited_revisions=SimpleNamespace(tables=set),
            context=SimpleNamespace(config=SimpleNamespace(blocks=blocks), catalog=catalog),
            report=SimpleNamespace(counters=Counters(), troubles={}),
        )
        ends: Any = None  # no cluster is asked
        self.watch = LagWatch(
            ends, {STREAM: self.owner}, {}, lambda: self.unfit, LagFigures(self.registry), lambda: self.now_ms
        )

    def at(self, now_ms: int, table: TableState) -> int:
        """Since when messages of the table wait, as shown then."""
        self.now_ms = now_ms
        tables = (table,) if not table.idle else ()
        self.owner.state = StreamState("r1", 2, "id", 0, 7, 30, Window(), 0, tables)
        self.watch.refresh()
        return self.watch.table(STREAM, table)[1]


@pytest.fixture
async def watching() -> Watching:
    return Watching()


async def test_messages_that_come_do_not_make_a_table_wait_for_less_long(watching: Watching) -> None:
    assert watching.at(5_000, LAGS) == 5_000
    assert watching.at(6_000, replace(LAGS, pending=3)) == 5_000
    assert watching.at(90_000, replace(LAGS, pending=40)) == 5_000


async def test_a_table_whose_cursor_moves_waits_since_then(watching: Watching) -> None:
    watching.at(5_000, LAGS)
    assert watching.at(9_000, replace(LAGS, cursor=11)) == 9_000


async def test_a_table_whose_block_is_stored_waits_since_then(watching: Watching) -> None:
    block = Block(InFlight(12, 19, 8, 1, 0, 5), Stage.INSERTING, fresh=True)
    watching.at(5_000, replace(LAGS, block=block))
    assert watching.at(6_000, replace(LAGS, block=block, pending=9)) == 5_000
    assert watching.at(9_000, LAGS) == 9_000


async def test_a_table_waits_since_the_first_message_that_waits_and_not_for_longer(watching: Watching) -> None:
    watching.at(5_000, replace(LAGS, pending=0))
    assert watching.at(8_000, replace(LAGS, pending=0)) == 8_000
    assert watching.at(9_000, replace(LAGS, pending=1)) == 8_000


async def test_the_gauge_is_1_while_the_replica_takes_no_rows(watching: Watching) -> None:
    watching.watch.refresh()
    assert watching.registry.get_sample_value("blockhouse_replica_unfit") == 0
    watching.unfit = "the replica has not answered for 5 s"
    watching.watch.refresh()
    assert watching.registry.get_sample_value("blockhouse_replica_unfit") == 1
    watching.unfit = ""
    watching.watch.refresh()
    assert watching.registry.get_sample_value("blockhouse_replica_unfit") == 0
