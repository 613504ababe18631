"""A granted insert is not sent after its deadline, wherever the process was frozen since the grant.

The replica is pretended and so is the clock: a freeze is a jump of the clock in the middle of a call. That real inserts
end as described here is the matter of `tests/integration`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.pipeline import MAX_ROWS, Quorum
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks import asking, inserting
from blockhouse_aggregator.blocks.build import BlockBuilder
from blockhouse_aggregator.clickhouse.presence import StoredRows
from blockhouse_aggregator.gate.messages import BlockKey, Go, Grant, Ready, Result
from blockhouse_aggregator.wire.formats import Format
from tests.format_messages import encode, history

STREAM = StreamId("a", "events-01", 0)
GRANTED, LIFETIME, FROZEN = 1_700_000_000.0, 60.0, 90.0


@dataclass
class World:
    """What happened, and what time it is."""

    now: float = GRANTED
    sent: list[Any] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    freeze_at: str = ""
    """Where the process stands still for longer than its grant lives: `asking`, `connecting`, `at the server` or
    `answered`, which is when the driver's answer is on its way."""
    clock_stands: bool = False
    refusal: str = ""
    """What the driver answers when it is asked whether the first byte may be sent; `gone`: it is not there any more."""

    def pass_by(self, point: str) -> None:
        if point == self.freeze_at and not self.clock_stands:
            self.now += FROZEN


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()

    def insert_native(request: Any) -> Any:
        world.pass_by("at the server")
        request.before()
        world.sent.append(request)
        return SimpleNamespace(deduplicated=False)

    def replica(_: ClickHouse) -> Any:
        world.pass_by("connecting")
        features = SimpleNamespace(deduplication_token=True)
        return SimpleNamespace(insert_native=insert_native, features=lambda: features, close=lambda: None)

    def stored_rows(*_: Any, **__: Any) -> StoredRows:
        world.pass_by("asking")
        return StoredRows({})

    monkeypatch.setattr(inserting, "time", SimpleNamespace(time=lambda: world.now, monotonic=lambda: world.now))
    monkeypatch.setattr(inserting, "Replica", replica)
    monkeypatch.setattr(inserting, "describe", lambda *_: SimpleNamespace())
    monkeypatch.setattr(asking, "stored_rows", stored_rows)
    return world


def insert(world: World, *, ask_provenance: bool) -> Result:
    """What becomes of one granted block."""
    table = history({"n": "UInt32"})
    builder = BlockBuilder(table, table.revisions[0], STREAM)
    builder.append(7, encode("rows", table, [{"n": 1}, {"n": 2}]), int(GRANTED * 1000), Format.ROWS)
    builder.decode()
    block = builder.seal(MAX_ROWS).block
    assert block is not None

    def report(message: Result | Ready) -> None:
        if isinstance(message, Result):
            world.results.append(message)
        elif world.refusal == "gone":
            inserter.abandon()
        else:
            world.pass_by("answered")
            inserter.go(Go(block=message.block, refusal=world.refusal))

    inserter = inserting.Inserter(STREAM, ClickHouse(host="127.0.0.1"), Quorum(), report)
    inserter.buffer(block, builder)
    key = BlockKey(table=block.table, begin=block.begin, end=block.end)
    deadline_ms = int((GRANTED + LIFETIME) * 1000)
    inserter.grant(Grant(block=key, token="t", deadline_ms=deadline_ms, ask_provenance=ask_provenance))
    inserter.close()
    (result,) = world.results
    return result


@pytest.mark.parametrize("ask_provenance", [False, True])
def test_a_block_granted_in_time_is_sent_with_the_time_that_is_left(world: World, ask_provenance: bool) -> None:
    assert insert(world, ask_provenance=ask_provenance).outcome == "stored"
    (request,) = world.sent
    assert (request.rows, request.lifetime) == (2, LIFETIME)


def test_an_answer_of_provenance_that_is_older_than_the_grant_sends_nothing(world: World) -> None:
    """Meanwhile others may have stored the block, and the server have forgotten it: it would be stored twice."""
    world.freeze_at = "asking"
    result = insert(world, ask_provenance=True)
    assert (world.sent, result.outcome, result.attempts) == ([], "retryable", 1)
    assert "deadline was over before the insert was sent" in result.message


@pytest.mark.parametrize("ask_provenance", [False, True])
def test_a_connection_that_took_longer_than_the_grant_sends_nothing(world: World, ask_provenance: bool) -> None:
    world.freeze_at = "connecting"
    assert insert(world, ask_provenance=ask_provenance).outcome == "retryable"
    assert world.sent == []


@pytest.mark.parametrize("ask_provenance", [False, True])
@pytest.mark.parametrize("refusal", ["the lock is another owner's by now", "gone"])
def test_a_process_whose_clock_stood_still_sends_nothing_without_a_proof(
    world: World, ask_provenance: bool, refusal: str
) -> None:
    world.freeze_at, world.clock_stands, world.refusal = "at the server", True, refusal
    result = insert(world, ask_provenance=ask_provenance)
    assert (world.sent, result.outcome) == ([], "retryable")
    assert "may not begin" in result.message


@pytest.mark.parametrize("ask_provenance", [False, True])
def test_an_answer_of_the_driver_that_is_older_than_the_grant_sends_nothing(world: World, ask_provenance: bool) -> None:
    """It was delivered to a process that was frozen, and read when the block had left the window."""
    world.freeze_at = "answered"
    result = insert(world, ask_provenance=ask_provenance)
    assert (world.sent, result.outcome) == ([], "retryable")
    assert "when the answer was read" in result.message
