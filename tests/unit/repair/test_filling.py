"""When missing messages may be loaded: Kafka, ZooKeeper, server and inserter are scripted, the way to an insert is the
aggregator's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window
from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.blocks.build import BlockBuilder
from blockhouse_aggregator.clickhouse.presence import Origin
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.gate.messages import BlockKey, Go, Grant, Ready, Rebuilt, Replay, Result
from blockhouse_aggregator.repair.filling import BEYOND_THE_COMMITTED, CANNOT_BE_REBUILT, Filling, GrantedInsert
from blockhouse_aggregator.repair.judging import Judged, TableJudged, Verdict
from blockhouse_aggregator.repair.standing import Standing
from blockhouse_aggregator.repair.survey import Surveyed, Table
from blockhouse_aggregator.runtime.ports import Lock
from tests.format_messages import encode, history
from tests.unit.runtime.test_storing import BLOCK, TABLE, storing
from tests.unit.runtime.test_storing import World as Servers

HISTORY: TableHistory = history({"n": "UInt32"}).model_copy(update={"id": 4, "name": "default.t"})
KNOWN = Table(HISTORY, TABLE, Origin("a", 0, "events/id"))


def standing(position: int = 100, *entries: TableEntry, topic_id: str = "id") -> Standing:
    metadata = Metadata("r1", 7, 0, topic_id, 0, position, Window(reference=position), entries)
    return Standing(BLOCK.stream, KafkaCluster(name="a", bootstrap_servers="k:9092"), metadata, 0, False)


@dataclass
class FakeWorld:
    """`filling.World`: what was asked, in order, and whether the table's lock was held then."""

    servers: Servers
    now: Standing = field(default_factory=standing)
    running: int = 0
    lock_lost: bool = False
    defect: Exception | None = None
    asked: list[tuple[str, bool]] = field(default_factory=list)

    def _note(self, what: str) -> None:
        self.asked.append((what, bool(self.servers.held)))

    def check_no_insert_runs(self, table: ServerTable) -> None:
        self._note("inserts")
        if self.running:
            self.running -= 1
            raise Retryable("an INSERT still runs", after=0)

    def standing(self) -> Standing:
        self._note("standing")
        if self.defect is not None:
            raise self.defect
        return self.now

    def check_lock(self, lock: Lock) -> None:
        self._note("lock")
        if self.lock_lost:
            raise Retryable("the lock was lost", after=10)


class Hands:
    """`filling.Inserter`, which asks before it sends. `sent` are the blocks of which a byte was sent."""

    def __init__(self, world: FakeWorld, report: Callable[[Result | Ready], None]) -> None:
        self._world = world
        self._report = report
        self.grants: list[Grant] = []
        self.sent: list[tuple[int, int]] = []

    def buffer(self, block: Any, builder: Any = None) -> None:
        assert builder is not None, "provenance separates the rows of a rebuilt block"

    def grant(self, grant: Grant) -> None:
        self.grants.append(grant)
        self._world._note("provenance")
        self._report(Ready(block=grant.block))

    def go(self, go: Go) -> None:
        if not go.refusal:
            self.sent.append((go.block.begin, go.block.end))
        outcome: Any = "retryable" if go.refusal else "stored"
        self._report(Result(block=go.block, outcome=outcome, attempts=1, elapsed=0.1, message=go.refusal))


class Log:
    """`filling.Scanner` of a log in which every message has one row, and `bad` ones cannot be decoded."""

    def __init__(self, offsets: Sequence[int], bad: Sequence[int] = ()) -> None:
        self._offsets, self._bad = offsets, frozenset(bad)

    def replay(self, order: Replay, finished: Callable[[], bool]) -> tuple[Rebuilt, list[Any]]:
        (asked,) = order.blocks
        builder = BlockBuilder(HISTORY, HISTORY.revisions[0], BLOCK.stream, topic_id=order.topic_id)
        for offset in self._offsets:
            if asked.begin <= offset <= asked.end:
                value = b"\xff" if offset in self._bad else encode("rows", HISTORY, [{"n": offset}])
                builder.append(offset, value, 0)
        block = builder.seal(1000).block
        whole = block is not None and (block.begin, block.end) == (asked.begin, asked.end)
        key = BlockKey(table=asked.table, begin=asked.begin, end=asked.end)
        return Rebuilt(round=0, blocks=(), missing=() if whole else (key,)), [(block, builder)] if whole else []


def missing(*offsets: int) -> Surveyed:
    """A survey that found these messages missing."""
    ones = np.ones(len(offsets), np.int64)
    verdicts = np.full(len(offsets), Verdict.MISSING, np.int8)
    judged = Judged(np.array(offsets, np.int64), ones, ones, verdicts)
    return Surveyed(0, 100, (TableJudged("default.t", judged),), {"default.t": KNOWN}, 0)


async def filled(
    world: FakeWorld, *offsets: int, bad: Sequence[int] = (), patience: float = 5.0
) -> tuple[Filling, Hands]:
    hands: list[Hands] = []

    def inserter(report: Callable[[Result | Ready], None]) -> Hands:
        hands.append(Hands(world, report))
        return hands[0]

    task = GrantedInsert(world, "id", inserter)
    filling = Filling(standing(), storing(world.servers), Log(offsets, bad), task, 1000, patience=patience)
    await asyncio.wait_for(filling.fill(missing(*offsets)), 20)
    return filling, hands[0]


async def test_everything_is_asked_again_under_the_lock_and_only_then_a_byte_is_sent() -> None:
    world = FakeWorld(Servers())
    filling, hands = await filled(world, 10, 11, 12)
    assert filling.refused == []
    assert hands.sent == [(10, 12)]
    assert world.asked == [("inserts", True), ("provenance", True), ("standing", True), ("lock", True)]


async def test_the_servers_memory_is_never_trusted_for_rows_that_were_stored_once() -> None:
    """A block of the same bounds is certainly in the window, as far as anyone knows: its rows may be gone."""
    _, hands = await filled(FakeWorld(Servers()), 10, 11)
    assert [(g.ask_provenance, g.repair, g.exact, g.by_token) for g in hands.grants] == [(True, True, False, False)]


async def test_nothing_is_sent_of_what_is_above_the_committed_position_by_now() -> None:
    """As when an operator let the stream begin again further back since the survey."""
    world = FakeWorld(Servers(), standing(12))
    filling, hands = await filled(world, 10, 11, 12)
    assert hands.sent == []
    assert [(r.begin, r.end, r.reason) for r in filling.refused] == [(10, 12, BEYOND_THE_COMMITTED)]


async def test_nothing_is_sent_of_what_is_in_flight_or_lags() -> None:
    for entry in (TableEntry(4, InFlight(11, 20, 2, 1, 0, 0)), TableEntry(4, cursor=11, pending=1)):
        world = FakeWorld(Servers(), standing(100, entry))
        filling, hands = await filled(world, 10, 11)
        assert hands.sent == []
        assert [r.reason for r in filling.refused] == [BEYOND_THE_COMMITTED]


async def test_nothing_is_sent_to_follow_a_topic_that_was_created_again_since() -> None:
    filling, hands = await filled(FakeWorld(Servers(), standing(100, topic_id="another")), 10)
    assert hands.sent == []
    assert [r.reason for r in filling.refused] == [BEYOND_THE_COMMITTED]


async def test_nothing_is_sent_under_a_lock_that_was_lost() -> None:
    filling, hands = await filled(FakeWorld(Servers(), lock_lost=True), 10, patience=1.0)
    assert hands.sent == []
    assert [r.reason for r in filling.refused] == ["NotStored"]


async def test_a_defect_while_an_insert_is_proven_ends_the_repair() -> None:
    world = FakeWorld(Servers(), defect=KeyError("of our own"))
    with pytest.raises(KeyError, match="of our own"):
        await filled(world, 10)


async def test_an_insert_of_a_killed_repair_is_waited_for_before_provenance_is_asked() -> None:
    world = FakeWorld(Servers(), running=2)
    filling, hands = await filled(world, 10)
    assert filling.refused == []
    assert [what for what, _ in world.asked] == ["inserts"] * 3 + ["provenance", "standing", "lock"]
    assert hands.sent == [(10, 10)]


async def test_a_table_that_another_pipeline_has_claimed_is_refused() -> None:
    filling, hands = await filled(FakeWorld(Servers(claimed_by_another=True)), 10)
    assert hands.sent == []
    assert [r.reason for r in filling.refused] == ["TableClaimed"]


async def test_what_cannot_be_decoded_is_named_and_the_others_are_loaded() -> None:
    filling, hands = await filled(FakeWorld(Servers()), 10, 11, 12, 13, bad=(10,))
    assert [(r.begin, r.end, r.reason) for r in filling.refused] == [(10, 10, CANNOT_BE_REBUILT)]
    assert [offset for begin, end in hands.sent for offset in range(begin, end + 1)] == [11, 12, 13]


async def test_a_topic_of_a_former_name_makes_rows_without_one_ambiguous() -> None:
    world = FakeWorld(Servers())
    hands: list[Hands] = []
    task = GrantedInsert(world, "id", lambda report: hands.append(Hands(world, report)) or hands[0])
    former = replace(standing(), former=True)
    filling = Filling(former, storing(world.servers), Log([10]), task, 1000)
    await filling.fill(missing(10))
    assert [grant.sole for grant in hands[0].grants] == [False]
