"""What is asked and written before metadata is committed: whether it fits, and the marker of a new stream."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

from blockhouse.errors import Blocked
from blockhouse.metadata import codec
from blockhouse.metadata.model import InFlight, Metadata, Window
from blockhouse.streams import StreamId
from blockhouse_aggregator.protocol.commits import Applied, CommitOutcome, Refused
from blockhouse_aggregator.protocol.events import Alarm, Commit
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState, metadata_of
from blockhouse_aggregator.protocol.takeover import Facts, Start
from blockhouse_aggregator.runtime.stream.context import MetadataRoom, StreamContext
from blockhouse_aggregator.runtime.stream.metadata_writer import MetadataWriter, is_smallest
from blockhouse_aggregator.runtime.stream.reporting import StreamReport
from tests.unit.runtime.test_retention import NOW, STATE

LAGGING = replace(
    STATE,
    window=Window(reference=STATE.position - 39 * 5),
    tables=tuple(TableState(number, None, 100 + number, 5) for number in range(1, 40)),
)
COMMIT = Commit(LAGGING.position, metadata_of(LAGGING, NOW), epoch=1)
CONTINUED = Start(STATE)
RESTARTED = Start(STATE, (Alarm("StreamRestarted", "it was accepted"),))


def writer(room: MetadataRoom) -> MetadataWriter:
    context = cast(StreamContext, SimpleNamespace(room=room))
    return MetadataWriter(StreamId("a", "events", 0), "r1/1/x", context, cast(StreamReport, None), asyncio.Event())


def unmarked(topic_id: str, metadata: Metadata | None) -> Facts:
    """Of a stream without a marker."""
    return Facts(None, metadata, "", log_begin=0, log_end=0, topic_id=topic_id, compacted=False, marker_topic_id=None)


def test_a_round_that_is_too_large_is_read_again_unless_it_is_the_smallest() -> None:
    units = len(codec.encode(COMMIT.metadata))
    room = MetadataRoom(units)
    assert writer(room).fits([COMMIT], smallest=False)
    room.refused(units)
    assert room.units < units
    assert not writer(room).fits([COMMIT], smallest=False)
    assert writer(room).fits([COMMIT], smallest=True)  # or the stream would stand still for what lags alone


def test_a_round_is_not_the_smallest_while_a_block_in_flight_will_make_room() -> None:
    """Each lagging table that went in flight took more room, until the broker refused what the stream committed."""

    def sealed(state: StreamState, *numbers: int, stage: Stage = Stage.INSERTING) -> StreamState:
        for number in numbers:
            block = Block(InFlight(100 + number, 200, 5, 1, 1, NOW), stage, fresh=True)
            state = state.with_table(TableState(number, block, 300, 5))
        return state

    assert is_smallest(LAGGING, sealed(LAGGING, 1))
    assert not is_smallest(LAGGING, sealed(LAGGING, 1, 2))
    assert not is_smallest(LAGGING, sealed(LAGGING, 90, 91))
    waiting, blocked = sealed(LAGGING, 1), sealed(LAGGING, 1, stage=Stage.BLOCKED)
    assert not is_smallest(waiting, sealed(waiting, 2))
    assert is_smallest(blocked, sealed(blocked, 2))


def writer_in(context: object, report: object, closed: asyncio.Event) -> MetadataWriter:
    stream = StreamId("a", "events", 0)
    return MetadataWriter(stream, "r1/1/x", cast(StreamContext, context), cast(StreamReport, report), closed)


async def test_what_an_owner_before_committed_is_marked_before_more_is() -> None:
    done: list[tuple[str, int]] = []

    async def commit(_stream: StreamId, _epoch: int, _offset: int, text: str) -> CommitOutcome:
        metadata = codec.decode(text)
        assert isinstance(metadata, Metadata)
        done.append(("committed", metadata.seq))
        return Applied()

    async def mark(_stream: StreamId, metadata: Metadata, _history: str, *, afresh: bool, claimed_by: str) -> None:
        done.append(("marked", metadata.seq))

    async def identity() -> str:
        return "h"

    ports = SimpleNamespace(group=SimpleNamespace(commit=commit), markers=SimpleNamespace(mark_started=mark))
    context = SimpleNamespace(room=MetadataRoom(4000), ports=ports, catalog=SimpleNamespace(identity=identity))
    report = SimpleNamespace(committed=lambda *_: None)
    closed = asyncio.Event()
    found = writer_in(context, report, closed)
    before = replace(COMMIT.metadata, seq=COMMIT.metadata.seq - 1)
    facts = unmarked("T", before)
    found.started(facts, CONTINUED)

    await found.write(COMMIT)
    await found.write(COMMIT)

    number = COMMIT.metadata.seq
    assert done == [("marked", number - 1), ("committed", number), ("committed", number)]


async def test_a_stream_that_is_another_owners_on_another_topic_by_now_is_taken_over_again() -> None:
    async def commit(*_: object) -> CommitOutcome:
        return Applied()

    async def mark(*_: object, afresh: bool, claimed_by: str) -> None:
        raise Blocked("started as one of another topic", reason="StartedOnOtherTopic")

    async def identity() -> str:
        return "h"

    ports = SimpleNamespace(group=SimpleNamespace(commit=commit), markers=SimpleNamespace(mark_started=mark))
    context = SimpleNamespace(room=MetadataRoom(4000), ports=ports, catalog=SimpleNamespace(identity=identity))
    report = SimpleNamespace(committed=lambda *_: None)
    found = writer_in(context, report, asyncio.Event())
    facts = unmarked("T", None)
    found.started(facts, CONTINUED)
    assert await found.write(COMMIT) == Refused("StartedOnOtherTopic")


async def test_what_was_committed_before_a_restart_is_not_marked_in_its_place() -> None:
    """While it stood still, the stream had metadata of the former topic and no marker."""
    marked: list[int] = []

    async def commit(*_: object) -> CommitOutcome:
        return Applied()

    async def mark(_stream: StreamId, metadata: Metadata, _history: str, *, afresh: bool, claimed_by: str) -> None:
        marked.append(metadata.seq)

    async def answer(*_: object) -> str:
        return "h"

    markers = SimpleNamespace(mark_started=mark, consume_acceptance=answer)
    ports = SimpleNamespace(group=SimpleNamespace(commit=commit), markers=markers)
    context = SimpleNamespace(room=MetadataRoom(4000), ports=ports, catalog=SimpleNamespace(identity=answer))
    report = SimpleNamespace(committed=lambda *_: None)
    found = writer_in(context, report, asyncio.Event())
    before = replace(COMMIT.metadata, seq=COMMIT.metadata.seq + 90)
    facts = unmarked("T2", before)
    found.started(facts, CONTINUED)
    found.started(facts, RESTARTED)
    await found.write(COMMIT)
    assert marked == [COMMIT.metadata.seq]
