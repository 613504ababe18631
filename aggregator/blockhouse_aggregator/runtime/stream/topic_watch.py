"""Whether a stream's topic still is the one its offsets are of.

A topic that is deleted and created again under its name is another one: its offsets mean other messages. A reader that
is positioned in the old one reads on in the new one without an error (measured on Kafka 4.3.1), so the id of the
topic has to be requested again and again. Must never let a commit pass whose last message may be of another topic than
its metadata names.
"""

from __future__ import annotations

import asyncio

import structlog

from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.runtime.ports import Group

log = structlog.get_logger(__name__)
LOOK_AT_TOPIC = 3.0
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
        while not self._closed.is_set():
            try:
                found = await group.topic_id(self._stream, max_age)
                return "TopicRecreated" if found and topic_id and found != topic_id else ""
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
