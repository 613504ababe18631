"""What a step of the driver decides is checked before it is performed: a defect is loud, does harm to nothing and does
not repeat without end; nothing is committed of a topic that is another by now."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from blockhouse.errors import Retryable
from blockhouse.metadata.model import Metadata
from blockhouse.streams import StreamId
from blockhouse_aggregator.protocol.commits import APPLIED, CommitOutcome
from blockhouse_aggregator.protocol.events import Alarm, Commit, Effect, Event, Flush, Insert
from blockhouse_aggregator.protocol.state import StreamState, metadata_of
from blockhouse_aggregator.protocol.takeover import Facts, Start, Stop
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.process.ownership import OwnedStreams
from blockhouse_aggregator.runtime.stream import defects as defects_module
from blockhouse_aggregator.runtime.stream import owner as owner_module
from blockhouse_aggregator.runtime.stream.defects import MOST_ERRORS, MOST_VIOLATIONS, Defects
from blockhouse_aggregator.runtime.stream.owner import StreamOwner
from blockhouse_aggregator.runtime.stream.ownership_history import OwnershipHistory
from tests.unit.protocol.given import NOW, A, in_flight_stream, intent
from tests.unit.runtime.configs import CONFIG, STREAM

STATE = in_flight_stream()
VIOLATED = "InvariantViolated"


class World:
    """Owners of one stream, one after another, in one process; every step of theirs has these `effects`."""

    def __init__(self) -> None:
        self.ended = 0
        self.commits: list[str] = []
        self.rebuilds: list[str] = []
        self.figures = Figures()
        self.effects: tuple[Effect, ...] = ()
        self.topic = STATE.topic_id
        self.defects = Defects(self._end)

    def _end(self) -> None:
        self.ended += 1

    async def commit(self, stream: StreamId, epoch: int, offset: int, metadata: str) -> CommitOutcome:
        self.commits.append(metadata)
        self.effects = ()
        return APPLIED

    async def topic_id(self, stream: StreamId, max_age: float) -> str:
        return self.topic

    async def mark_started(
        self, stream: StreamId, metadata: Metadata, history: str, *, afresh: bool, claimed_by: str
    ) -> None: ...

    async def identity(self) -> str:
        return "one"

    def step(self, state: StreamState, event: Event, now_ms: int) -> tuple[StreamState, tuple[Effect, ...]]:
        return state, self.effects

    def owner(self) -> StreamOwner:
        context: Any = SimpleNamespace(
            history=OwnershipHistory(lambda: 0),
            config=CONFIG,
            ports=SimpleNamespace(group=self, markers=self),
            catalog=SimpleNamespace(name=str, identity=self.identity),
            figures=self.figures,
            now_ms=lambda: NOW,
            defects=self.defects,
            faults=None,
            random=Random(1),
        )
        return StreamOwner(STREAM, 1, context, self.rebuilds.append)

    def alarms(self, reason: str) -> float:
        return self.figures.registry.get_sample_value("blockhouse_alarms_total", {"reason": reason}) or 0.0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(owner_module, "step", world.step)
    return world


def commit_of(state: StreamState) -> Commit:
    metadata = metadata_of(state, NOW)
    return Commit(metadata.committed_offset, metadata, state.epoch)


SKIPPED = commit_of(replace(STATE, seq=STATE.seq + 1))
UNCOUNTED = commit_of(replace(STATE, window=replace(STATE.window, sealed=STATE.window.sealed + 1)))
UNNAMED = Insert(A, intent(100, 103, 2), fresh=True)


@pytest.mark.parametrize(
    "effect", [SKIPPED, UNCOUNTED, UNNAMED], ids=["a number skipped", "uncounted", "unnamed insert"]
)
async def test_what_would_break_an_invariant_is_not_performed_but_an_alarm_and_a_rebuild(
    world: World, effect: Effect
) -> None:
    owner = world.owner()
    owner.state = STATE
    world.effects = (Alarm("Before", "the effects are one list: none of them is performed"), effect)

    await owner.apply(Flush())

    assert world.commits == []
    assert (world.rebuilds, owner.closed.is_set()) == ([VIOLATED], True)
    assert (world.alarms(VIOLATED), world.alarms("Before")) == (1, 0)


async def test_a_step_that_breaks_nothing_is_performed(world: World) -> None:
    owner = world.owner()
    owner.state = STATE
    world.effects = (commit_of(STATE),)

    await owner.apply(Flush())

    assert len(world.commits) == 1
    assert world.rebuilds == []


async def test_nothing_is_committed_once_the_topic_is_another(world: World) -> None:
    """What was read last may be of it, under the id of the one before."""
    owner = world.owner()
    owner.state = STATE
    world.effects, world.topic = (commit_of(STATE),), "another"

    await owner.apply(Flush())

    assert world.commits == []
    assert (world.rebuilds, owner.closed.is_set()) == (["TopicRecreated"], True)


async def taken_over(world: World, monkeypatch: pytest.MonkeyPatch, state: StreamState) -> StreamOwner:
    """An owner that has begun to take the stream over with this state."""

    async def found(*_: Any, **__: Any) -> tuple[Facts, Start]:
        facts = Facts(0, None, "", log_begin=0, log_end=1000, topic_id="T1", compacted=False, marker_topic_id="T1")
        return facts, Start(state)

    monkeypatch.setattr(owner_module, "take_over", found)
    monkeypatch.setattr(StreamOwner, "spawn", lambda _, work: work.close())
    owner = world.owner()
    starting = asyncio.ensure_future(owner.start())
    while owner.state is None and owner.stop is None and not starting.done():
        await asyncio.sleep(0)
    if owner.stop is not None:
        owner.closed.set()
    await starting
    return owner


async def test_the_third_violation_at_one_position_stops_the_stream(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.effects = (SKIPPED,)
    for _ in range(MOST_VIOLATIONS):
        owner = await taken_over(world, monkeypatch, STATE)
        assert owner.stop is None
        await owner.apply(Flush())

    stopped = await taken_over(world, monkeypatch, STATE)

    assert isinstance(stopped.stop, Stop)
    assert stopped.stop.reason == VIOLATED
    assert stopped.state is None
    assert world.ended == 0, "the other streams continue"


async def test_violations_at_positions_that_the_stream_has_left_do_not_count(world: World) -> None:
    for position in (100, 100, 200, 200, 300):
        world.defects.violated(STREAM, position, ["I5"])
        assert world.defects.stop(STREAM, position) is None
    assert world.defects.stop(STREAM, 100) is None


async def test_an_error_of_our_own_is_logged_once_with_its_traceback_an_alarm_and_a_rebuild(world: World) -> None:
    owner = world.owner()
    owner.state = STATE

    async def defective() -> None:
        raise KeyError("a table that no history names")

    with capture_logs() as logs:
        owner.spawn(defective())
        while not owner.closed.is_set():
            await asyncio.sleep(0)

    (logged,) = [entry for entry in logs if entry["event"] == "internal_error"]
    assert (logged["log_level"], logged["exc_info"].args) == ("error", ("a table that no history names",))
    assert (world.alarms("InternalError"), world.rebuilds) == (1, ["InternalError"])


async def test_an_unavailable_server_is_no_error_of_our_own(world: World) -> None:
    for _ in range(2 * MOST_ERRORS):
        world.owner().failed(Retryable("zookeeper: unavailable"))
    assert (world.alarms("InternalError"), world.ended) == (0, 0)
    assert len(world.rebuilds) == 2 * MOST_ERRORS


async def test_the_process_ends_after_five_errors_within_ten_minutes_and_not_after_four(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(defects_module, "loop_time", lambda: clock[0])
    for clock[0] in (0.0, 10.0, 20.0, 30.0, 601.0):
        world.owner().failed(ValueError("once more"))
    assert world.ended == 0
    clock[0] = 602.0
    world.owner().failed(ValueError("the fifth since 10.0"))
    assert world.ended == 1


async def test_an_error_while_a_stream_is_taken_over_leaves_the_other_streams_alone() -> None:
    failed: list[BaseException] = []
    unused: Any = None

    async def broken() -> None:
        raise ZeroDivisionError

    owner = SimpleNamespace(start=broken, failed=failed.append)
    streams = OwnedStreams(unused, unused, unused, asyncio.Event())
    await streams._own(cast(StreamOwner, cast(Any, owner)))
    assert [type(error) for error in failed] == [ZeroDivisionError]
