"""The dead letters of one lease: made when the first is written, made again after every refusal.

Must never raise anything but Retryable for a refusal: rights, limits and brokers come back, and where the stream stands
is not in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks import collecting
from blockhouse_aggregator.kafka.dead_letters import DeadLetter, DeadLetterWriter
from blockhouse_aggregator.kafka.headers import Unreadable, headers_of

DEAD_LETTER_REFUSED = "DeadLetterRefused"
"""The stream waits before the message, for no commit passes a letter that the brokers do not have."""


class Writer(Protocol):
    """`DeadLetterWriter` is the real one."""

    def ensure_topic(self, source: str) -> None: ...
    def write(self, letters: Sequence[DeadLetter]) -> None: ...
    def close(self) -> None: ...


class Letters:
    """Of one stream, for `topic` of its cluster. Not thread-safe."""

    def __init__(
        self,
        stream: StreamId,
        cluster: KafkaCluster,
        topic: str,
        connect: Callable[[KafkaCluster, str], Writer] = DeadLetterWriter,
    ) -> None:
        self._stream = stream
        self._cluster = cluster
        self._topic = topic
        self._connect = connect
        self._writer: Writer | None = None

    def write(self, letters: Sequence[collecting.DeadLetter], topic_id: str) -> None:
        """Returns when the dead-letter topic has all of them. `topic_id` is that of the stream's own topic.

        Raises Retryable `DeadLetterRefused` with the cause."""
        try:
            if self._writer is None:
                self._writer = self._connect(self._cluster, self._topic)
                self._writer.ensure_topic(self._stream.topic)
            self._writer.write([_record(self._stream, topic_id, letter) for letter in letters])
        except BlockhouseError as error:
            self.close()  # the next one makes the topic again: it may have been deleted
            raise Retryable(str(error), after=1.0, reason=DEAD_LETTER_REFUSED) from error

    def close(self) -> None:
        """Nothing is pending between writes, so nothing is lost. The next write connects again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _record(stream: StreamId, topic_id: str, letter: collecting.DeadLetter) -> DeadLetter:
    message, headers = letter.message, headers_of(letter.message)
    return DeadLetter(
        stream=stream,
        topic_id=topic_id,
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=() if isinstance(headers, Unreadable) else headers,
        timestamp_ms=message.timestamp()[1],
        reason=letter.reason,
        table=letter.table,
        detail=letter.detail,
    )
