"""What waits for a table in vain is dead-lettered before retention takes it, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from blockhouse.config.pipeline import Blocks
from blockhouse.errors import Retryable
from blockhouse.metadata.model import InFlight, Window
from blockhouse.streams import StreamId
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState
from blockhouse_aggregator.runtime.stream.retention import Due, Retention, burial, expiring

NOW = 1_800_000_000_000
STREAM = StreamId("a", "events", 0)
STATE = StreamState(
    replica="r1",
    epoch=1,
    topic_id="T",
    leader_epoch=-1,
    seq=3,
    position=500,
    window=Window(reference=500 - 12),
    window_opened_ms=NOW,
    tables=(
        TableState(1, None, 100, 5),
        TableState(2, None, 300, 5),
        TableState(3, Block(InFlight(90, 110, 3, 1, 1, NOW), Stage.BLOCKED, fresh=False), 120, 2),
        TableState(4, None, 100, 0),
    ),
)
HOPELESS = {1: "UnknownTable", 2: "SchemaChange", 3: "SchemaChange"}


class Group:
    def __init__(self, retention: float | None = 100.0) -> None:
        self.seconds = retention
        self.asked: list[int] = []

    async def retention(self, stream: StreamId) -> float | None:
        return self.seconds

    async def offset_at(self, stream: StreamId, timestamp_ms: int) -> int:
        self.asked.append(timestamp_ms)
        return 250


class Unavailable(Group):
    async def retention(self, stream: StreamId) -> float | None:
        raise Retryable("no broker")


def test_only_tables_that_cannot_be_loaded_and_are_old_enough_are_due() -> None:
    assert expiring(STATE, 250, HOPELESS) == {1: Due(100, "UnknownTable")}
    assert expiring(STATE, 301, HOPELESS) == {1: Due(100, "UnknownTable"), 2: Due(300, "SchemaChange")}
    assert expiring(STATE, 0, HOPELESS) == {}
    assert expiring(STATE, 1000, {}) == {}


def test_the_burial_reads_no_further_than_what_expires_and_no_other_table() -> None:
    order = burial(STATE, 250, expiring(STATE, 250, HOPELESS), "t{}".format, 7, Blocks(), 1.0, 2.0)
    assert (order.start, order.stop, order.position, order.entries) == (100, 250, 500, 0)
    assert order.resume == {"t1": 100}
    assert order.dead_tables == {"t1": "UnknownTable"}
    assert set(order.exclude) == {"t2", "t3", "t4"}
    beyond = burial(STATE, 900, expiring(STATE, 900, HOPELESS), "t{}".format, 7, Blocks(), 1.0, 2.0)
    assert beyond.stop == 500, "nothing new is taken with it"


async def test_messages_expire_at_four_fifths_of_the_retention() -> None:
    group, retention = Group(), Retention(STREAM)
    await retention.look(group, STATE, NOW)  # type: ignore[arg-type]
    assert (retention.below, group.asked) == (250, [NOW - 80_000])
    await retention.look(group, STATE, NOW)  # type: ignore[arg-type]
    assert len(group.asked) == 1, "not asked every time"


async def test_without_retention_or_lagging_tables_nothing_expires() -> None:
    forever, idle = Retention(STREAM), Retention(STREAM)
    await forever.look(Group(None), STATE, NOW)  # type: ignore[arg-type]
    assert forever.below == 0
    group = Group()
    await idle.look(group, replace(STATE, tables=()), NOW)  # type: ignore[arg-type]
    assert group.asked == []


async def test_an_unavailable_cluster_buries_nothing() -> None:
    retention = Retention(STREAM)
    await retention.look(Unavailable(), STATE, NOW)  # type: ignore[arg-type]
    assert retention.below == 0


def test_the_alarm_about_a_table_is_raised_once() -> None:
    retention, due = Retention(STREAM), expiring(STATE, 250, HOPELESS)
    assert [alarm.reason for alarm in retention.unreported(due)] == ["RetentionNear"]
    assert retention.unreported(due) == ()
