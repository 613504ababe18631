"""The fault points around a commit, as a layer over `ports.Group`. In the way only when fault injection is on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from blockhouse.metadata import codec
from blockhouse.metadata.model import Metadata
from blockhouse.streams import StreamId
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.faults.model import Action, Point
from blockhouse_aggregator.faults.strike import strike_loop
from blockhouse_aggregator.protocol.commits import Applied, CommitOutcome, Refused, Unknown
from blockhouse_aggregator.runtime.ports import Group, StreamFacts, TableCount

REASON = "InjectedFault"


class FaultyGroup:
    """Only a commit that names a block in flight passes the points: between any other and an insert there is nothing.

    `rejoin` makes the member of a cluster come back under a new member id: what the real one does after a commit whose
    answer is lost.
    """

    def __init__(self, group: Group, faults: Faults, rejoin: Callable[[str], Awaitable[None]]) -> None:
        self._group = group
        self._faults = faults
        self._rejoin = rejoin

    async def commit(self, stream: StreamId, epoch: int, offset: int, metadata: str) -> CommitOutcome:
        """As the group behind it, unless a fault is armed at one of the points of a commit."""
        if not _has_blocks(metadata):
            return await self._group.commit(stream, epoch, offset, metadata)
        before = self._faults.take(Point.BEFORE_COMMIT, str(stream))
        if before is not None and before.action is Action.FAIL:
            return Refused(REASON)
        await strike_loop(before)
        outcome = await self._group.commit(stream, epoch, offset, metadata)
        if not isinstance(outcome, Applied):
            return outcome
        after = self._faults.take(Point.AFTER_COMMIT, str(stream))
        if after is not None and after.action is Action.FAIL:
            await self._rejoin(stream.cluster)
            return Unknown(REASON)
        await strike_loop(after)
        return outcome

    async def facts(self, stream: StreamId, epoch: int) -> StreamFacts:
        """As the group behind it."""
        return await self._group.facts(stream, epoch)

    async def topic_id(self, stream: StreamId, max_age: float = 0.0) -> str:
        """As the group behind it."""
        return await self._group.topic_id(stream, max_age)

    async def reaches(self, stream: StreamId, position: int, leader_epoch: int) -> bool:
        """As the group behind it."""
        return await self._group.reaches(stream, position, leader_epoch)

    async def retention(self, stream: StreamId) -> float | None:
        """As the group behind it."""
        return await self._group.retention(stream)

    async def offset_at(self, stream: StreamId, timestamp_ms: int) -> int:
        """As the group behind it."""
        return await self._group.offset_at(stream, timestamp_ms)

    async def survey(
        self, stream: StreamId, start: int, stop: int, ranges: Mapping[str, tuple[int, int]]
    ) -> Mapping[str, TableCount]:
        """As the group behind it."""
        return await self._group.survey(stream, start, stop, ranges)


def _has_blocks(metadata: str) -> bool:
    decoded = codec.decode(metadata)
    return isinstance(decoded, Metadata) and any(entry.in_flight is not None for entry in decoded.tables)
