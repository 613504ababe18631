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
from blockhouse_aggregator.protocol.state import StreamState
from blockhouse_aggregator.runtime.ports import Group

log = structlog.get_logger(__name__)
TOPIC_CHECK_PERIOD = 3.0
"""Seconds between two checks of the topic of streams that commit nothing."""
_PAUSE = 0.5


class TopicWatch:
    """Asks for one stream, until it is `closed`."""

    def __init__(self, stream: StreamId, closed: asyncio.Event) -> None:
        self._stream, self._closed = stream, closed

    async def problem(self, group: Group, topic_id: str, *, max_age: float = 0.0) -> str:
        """Why the stream cannot continue as one of `topic_id`, CamelCase; empty when it can.

        Asks now, or takes an answer less than `max_age` seconds old. Waits as long as the cluster does not answer.
        """

        async def ask() -> str:
            found = await group.topic_id(self._stream, max_age)
            return "TopicRecreated" if found and topic_id and found != topic_id else ""

        return await self._answer(ask)

    async def cut(self, group: Group, state: StreamState, sealed: Sealed) -> str:
        """The same of the log: whether the range that was read last continues what the stream has read before.

        A reader finds out by itself only if it learns of another leader at a position that was cut. So where a range
        ends in another leader epoch than the position, the leader is asked. Below the position older ones are natural.
        """
        known, found = state.leader_epoch, sealed.leader_epoch
        if known in (-1, found) or (sealed.stop <= state.position and 0 <= found < known):
            return ""

        async def ask() -> str:
            return "" if await group.reaches(self._stream, state.position, known) else "LogTruncated"

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
