"""Writes a stream's metadata: what fits, the commit itself, and the durable marker that the stream was started.

The marker is written between the first commit and the first insert: expired offsets must never look like a new stream.
(Written before the commit, a stream that moved in between would look expired.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from blockhouse.errors import Blocked, Retryable
from blockhouse.metadata import codec
from blockhouse.metadata.model import Metadata
from blockhouse.streams import StreamId
from blockhouse_aggregator.protocol.commits import Applied, CommitOutcome, Refused
from blockhouse_aggregator.protocol.events import Commit, Effect
from blockhouse_aggregator.protocol.state import Stage, StreamState
from blockhouse_aggregator.protocol.takeover import Facts, Start, Stop
from blockhouse_aggregator.runtime.clock import loop_time, pause
from blockhouse_aggregator.runtime.stream.context import StreamContext
from blockhouse_aggregator.runtime.stream.reporting import StreamReport
from blockhouse_aggregator.runtime.stream.resumption import claims, restarted

log = structlog.get_logger(__name__)

ENTRY_UNITS = 26
"""UTF-16 units a new metadata entry is first expected to take."""
MARKER_RETRY = 1.0


class MetadataWriter:
    """Of one stream in one epoch, which is over when `closed` is set; `owner` is a name that no other owner has."""

    def __init__(
        self, stream: StreamId, owner: str, context: StreamContext, report: StreamReport, closed: asyncio.Event
    ) -> None:
        self._stream = stream
        self._owner = owner
        self._context = context
        self._report = report
        self._closed = closed
        self._entry_units = ENTRY_UNITS
        self._marked = False
        self._unmarked: Metadata | None = None
        self._restarted = False
        self._claimed_by = ""
        self._written_at = 0.0

    def started(self, facts: Facts, decision: Start | Stop) -> None:
        """The stream is taken over by these facts. Caller: the owner, before anything is written."""
        accepted = restarted(decision)
        self._restarted = accepted or facts.marker_of_former_topic
        self._claimed_by = self._owner if claims(facts, decision) else ""
        self._marked = facts.marker_topic_id == facts.topic_id and not accepted
        left_to_us = facts.marker_topic_id is None and not accepted and not facts.adopted
        self._unmarked = facts.metadata if left_to_us else None

    @property
    def idle_for(self) -> float:
        """Seconds since the last commit."""
        return loop_time() - self._written_at

    def room(self, metadata: Metadata) -> int:
        """How many more entries the metadata has room for."""
        limit = self._context.room.units
        return max(0, (limit - len(codec.encode(metadata))) // self._entry_units)

    def fits(self, effects: Iterable[Effect], *, smallest: bool) -> bool:
        """False when a round's metadata does not fit: it is dropped and read again with room for fewer tables.

        The `smallest` round always fits: the room may be below what the broker takes, since one refusal shrinks it by a
        quarter, and tables that lag or are blocked may fill it. Only the broker then knows if the stream can continue.
        """
        limit = self._context.room.units
        for effect in effects:
            if not isinstance(effect, Commit) or (units := len(codec.encode(effect.metadata))) <= limit:
                continue
            log.warning("stream.round_too_large", stream=str(self._stream), units=units, limit=limit, tried=smallest)
            if not smallest:
                self._entry_units = min(self._entry_units * 2, limit)
                return False
        self._entry_units = max(ENTRY_UNITS, self._entry_units * 7 // 8)
        return True

    async def write(self, commit: Commit) -> CommitOutcome:
        """Commit, and mark the stream as started before it is called applied.

        An owner that died between its first commit and the marker left that to this one, which does it before it
        commits more: dying there as well, it would leave metadata that no marker knows, as if one had been lost.
        """
        if self._unmarked is not None:
            if refused := await self._mark_started(self._unmarked):
                return refused
            self._unmarked = None
        text = codec.encode(commit.metadata)
        outcome = await self._context.ports.group.commit(self._stream, commit.epoch, commit.offset, text)
        self._report.committed(outcome, len(text))
        self._written_at = loop_time()
        if isinstance(outcome, Applied):
            return await self._mark_started(commit.metadata) or outcome
        if isinstance(outcome, Refused) and outcome.reason == "OffsetMetadataTooLarge":
            room = self._context.room.refused(len(text))
            log.error("stream.metadata_refused", stream=str(self._stream), units=len(text), now=room)
        return outcome

    async def _mark_started(self, metadata: Metadata) -> Refused | None:
        """A refusal when the stream is another owner's by now, on another topic: it is to be taken over again."""
        markers = self._context.ports.markers
        while not self._marked and not self._closed.is_set():
            try:
                history = await self._context.catalog.identity()
                await markers.mark_started(
                    self._stream, metadata, history, afresh=self._restarted, claimed_by=self._claimed_by
                )
                if self._restarted:
                    await markers.consume_acceptance(self._stream)
                self._marked = True
            except Retryable as error:
                log.warning("stream.marker_waits", stream=str(self._stream), error=str(error))
                await pause(self._closed, MARKER_RETRY)
            except Blocked as error:
                log.warning("stream.not_marked", stream=str(self._stream), error=str(error))
                return Refused(error.reason)
        return None


def is_smallest(before: StreamState, after: StreamState) -> bool:
    """Whether neither a smaller round nor waiting makes room for the round that leads from one state to the other: it
    adds one block and one entry at most, and no block in flight is left that leaves the metadata once it is stored."""
    awaited = any(t.block is not None and t.block.stage is not Stage.BLOCKED for t in before.tables)
    added = len(after.in_flight) - len(before.in_flight), len(after.tables) - len(before.tables)
    return not awaited and max(added) <= 1
