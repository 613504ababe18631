"""Faults at a commit: only of one that names a block in flight, and each with the fate it stands for."""

from __future__ import annotations

from blockhouse.metadata import codec
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window
from blockhouse.streams import StreamId
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.faults.model import Action, ArmedFault, Point
from blockhouse_aggregator.protocol.commits import APPLIED, CommitOutcome, Refused, Unknown
from blockhouse_aggregator.runtime.ports import StreamFacts
from blockhouse_aggregator.runtime.process.faulty_group import REASON, FaultyGroup

STREAM = StreamId("a", "events", 0)


def metadata(*entries: TableEntry) -> str:
    return codec.encode(
        Metadata(
            replica="r1",
            seq=1,
            intent_ms=1_000,
            topic_id="t",
            leader_epoch=0,
            position=10,
            window=Window(reference=9 if entries else 10, sealed=1 if entries else 0),
            tables=entries,
        )
    )


WITH_BLOCK = metadata(TableEntry(1, InFlight(begin=9, end=9, messages=1, revision=1, crc=7, intent_ms=1_000)))
WITHOUT = metadata()


class RecordingGroup:
    def __init__(self) -> None:
        self.commits: list[str] = []

    async def commit(self, stream: StreamId, epoch: int, offset: int, metadata: str) -> CommitOutcome:
        self.commits.append(metadata)
        return APPLIED

    async def facts(self, stream: StreamId, epoch: int) -> StreamFacts:
        raise NotImplementedError


class World:
    def __init__(self, point: Point) -> None:
        self.real = RecordingGroup()
        self.rejoined: list[str] = []
        self.faults = Faults(enabled=True)
        self.faults.arm(ArmedFault(point=point, action=Action.FAIL))
        self.group = FaultyGroup(self.real, self.faults, self._rejoin)

    async def _rejoin(self, cluster: str) -> None:
        self.rejoined.append(cluster)

    async def commit(self, metadata: str) -> CommitOutcome:
        return await self.group.commit(STREAM, 1, 9, metadata)


async def test_a_commit_that_fails_before_it_is_sent_is_refused() -> None:
    world = World(Point.BEFORE_COMMIT)

    assert await world.commit(WITH_BLOCK) == Refused(REASON)
    assert (world.real.commits, world.rejoined) == ([], [])


async def test_a_commit_whose_answer_is_lost_was_applied_and_makes_the_member_rejoin() -> None:
    world = World(Point.AFTER_COMMIT)

    assert await world.commit(WITH_BLOCK) == Unknown(REASON)
    assert (world.real.commits, world.rejoined) == ([WITH_BLOCK], ["a"])


async def test_a_commit_without_a_block_in_flight_passes_no_point() -> None:
    world = World(Point.BEFORE_COMMIT)

    assert await world.commit(WITHOUT) == APPLIED
    assert await world.commit(WITH_BLOCK) == Refused(REASON)
    assert await world.commit(WITH_BLOCK) == APPLIED
