"""Whether a stream's topic and log still are those its offsets are of.

A topic that is deleted and created again under its name is another one: its offsets mean other messages. A reader that
is positioned in the old one reads on in the new one without an error (measured on Kafka 4.3.1), so the id of the
topic has to be requested again and again. Must never let a commit pass whose last message may be of another topic than
its metadata names, or of a log that was cut below what it continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.gate.messages import Sealed
from blockhouse_aggregator.protocol.state import Stage, StreamState
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.ports import Group

log = structlog.get_logger(__name__)
TOPIC_CHECK_PERIOD = 3.0
"""Seconds between two checks of the topic of streams that commit nothing."""
REPLAY_CHECK_PERIOD = 10.0
"""Seconds for which blocks may wait to be read again before the log is asked for, and between two such questions: each
opens a reader of its own."""
_PAUSE = 0.5


class TopicWatch:
    """Asks for one stream, until it is `closed`."""

    def __init__(self, stream: StreamId, closed: asyncio.Event) -> None:
        self._stream, self._closed = stream, closed
        self._replays_asked: float | None = None
        """When, on the loop's clock, blocks began to wait to be read again, or the log was last asked for."""

    async def problem(self, group: Group, topic_id: str, *, max_age: float = 0.0) -> str:
        """Why the stream cannot continue as one of `topic_id`, CamelCase; empty when it can.

        Asks now, or takes an answer less than `max_age` seconds old. Waits as long as the cluster does not answer.
        """

        async def ask() -> str:
            found = await group.topic_id(self._stream, max_age)
            return "TopicRecreated" if found and topic_id and found != topic_id else ""

        return await self._answer(ask)

    async def changed(self, group: Group, state: StreamState | None) -> str:
        """The same of a stream that commits nothing: asked now and then."""
        topic_id = state.topic_id if state is not None else ""
        problem = await self.problem(group, topic_id, max_age=TOPIC_CHECK_PERIOD)
        return problem or (await self.cut_below_replays(group, state) if state is not None else "")

    async def cut(self, group: Group, state: StreamState, sealed: Sealed) -> str:
        """The same of the log: whether the range that was read last continues what the stream has read before.

        A reader finds out by itself only if it learns of another leader at a position that was cut. So where a range
        ends in another leader epoch than the position, the leader is asked. Below the position older ones are natural.
        """
        known, found = state.leader_epoch, sealed.leader_epoch
        if known in (-1, found) or (sealed.stop <= state.position and 0 <= found < known):
            return ""

        return await self._reaches(group, state)

    async def cut_below_replays(self, group: Group, state: StreamState) -> str:
        """The same of blocks that wait to be read again, for as long as they do: at the end of a log that was cut, and
        to which no producer writes, their reader would wait indefinitely, and nothing else is read meanwhile."""
        if not any(t.block is not None and t.block.stage is Stage.REPLAY for t in state.in_flight):
            self._replays_asked = None
            return ""
        now = loop_time()
        since = self._replays_asked if self._replays_asked is not None else now
        if state.leader_epoch == -1 or now - since < REPLAY_CHECK_PERIOD:
            self._replays_asked = since
            return ""
        self._replays_asked = now
        return await self._reaches(group, state)

    async def _reaches(self, group: Group, state: StreamState) -> str:
        position, epoch = state.position, state.leader_epoch

        async def ask() -> str:
            return "" if await group.reaches(self._stream, position, epoch) else "LogTruncated"

        return await self._answer(ask)

    async def _answer(self, ask: Callable[[], Awaitable[str]]) -> str:
        while not self._closed.is_set():
            try:
                return await ask()
            except Retryable as error:
                log.warning("stream.topic_unasked", stream=str(self._stream), error=str(error))
                await self._pause(max(error.after, _PAUSE))
            except BlockhouseError as error:
                return error.reason or "Blocked"
        return "Closed"

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._closed.wait(), seconds)
        except TimeoutError:
            return
