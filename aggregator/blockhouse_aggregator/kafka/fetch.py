"""Reads one stream's messages from any offset, inside a worker process, outside of any consumer group.

The position counts holes (control records, aborted transactions, compacted offsets), so that a range may end where
the position is. Must never commit, never choose an offset by itself and never skip a message that is still there.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Blocked, BlockhouseError, Retryable
from blockhouse.kafka_errors import LoginRefusal, translate
from blockhouse.kafka_login import Certificates, Login
from blockhouse.streams import StreamId

_QUERY_SECONDS = 10.0
FETCH_BYTES = 64 << 10
"""What a broker waits for, `fetch_wait` seconds at most, before it answers."""
# Of the events a client reports beside its data, those that explain why nothing arrives. A single lost connection
# does not: librdkafka reconnects, or asks another broker.
_EXPLAINING = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._AUTHENTICATION,
    KafkaError._FATAL,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


class OffsetOutOfRange(Blocked):
    """The stream has no message at `offset` and cannot get one: it holds [begin, end) now.

    `reason` is `BelowLogStart` (retention or deletion was faster than we) or `BeyondLogEnd` (truncated, rewound, or the
    topic was created again).
    """

    def __init__(self, stream: StreamId, offset: int, begin: int, end: int) -> None:
        below = offset < begin
        cause = "retention has deleted it" if below else "the log was truncated, or the topic was created again"
        super().__init__(
            f"Kafka: stream {stream} has no offset {offset}, only [{begin}, {end}): {cause}; "
            f"compare with the committed position before anything is skipped",
            reason="BelowLogStart" if below else "BeyondLogEnd",
        )
        self.offset, self.begin, self.end = offset, begin, end


def settings(cluster: KafkaCluster, group: str, prefetch_bytes: int, fetch_wait: float) -> dict[str, Any]:
    """librdkafka settings of a reader; at most about `prefetch_bytes` plus one response wait in its memory."""
    return {
        **cluster.client_config(),
        "group.id": group,
        "client.id": "blockhouse-fetch",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "queued.max.messages.kbytes": max(1, prefetch_bytes >> 10),
        "queued.min.messages": 1_000_000,  # the bytes decide alone
        "fetch.message.max.bytes": max(1 << 20, prefetch_bytes // 4),
        # A response per message is most of what a broker does for a stream that has caught up.
        "fetch.min.bytes": FETCH_BYTES,
        "fetch.wait.max.ms": int(fetch_wait * 1000),
        # How long a full prefetch queue sleeps before it looks again; the default of 1 s halves the throughput.
        "fetch.queue.backoff.ms": 5,
        # A topic that does not exist, or was deleted, is reported after this; a new one may be unknown for a moment.
        "topic.metadata.refresh.interval.ms": 5_000,
        "topic.metadata.propagation.max.ms": 5_000,
        "log_level": 0,
    }


def reaches(cluster: KafkaCluster, stream: StreamId, position: int, leader_epoch: int, timeout: float) -> bool:
    """Whether the log, as it is now, still reaches `position` in `leader_epoch`: False when it was cut below. True also
    when retention has taken the evidence. Raises Retryable when the broker does not answer within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    with StreamReader(cluster, stream, prefetch_bytes=1 << 20, fetch_wait=0.05) as reader:
        reader.seek(position, leader_epoch)
        try:
            while time.monotonic() < deadline:
                if reader.read(1, 0.2) or reader.at_end:
                    return True
        except OffsetOutOfRange as error:
            return error.reason == "BelowLogStart"
        except Blocked:
            return False
    raise Retryable(f"Kafka: stream {stream} does not report in {timeout:g} s whether its log was cut", after=1.0)


class StreamReader:
    """A positioned consumer of `stream`, not thread-safe. Create it after a fork. `seek` first, then `read`.

    `group` appears in ACLs and quotas only. `fetch_wait` is how long, in seconds, a broker keeps a request when it has
    little or nothing: the last messages of the log, or a hole there, are seen that much later. Errors from `read` leave
    the reader usable: after a Retryable just read again, after any other one seek.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        stream: StreamId,
        *,
        group: str = "blockhouse-fetch",
        prefetch_bytes: int = 16 << 20,
        fetch_wait: float = 0.2,
    ) -> None:
        self.stream = stream
        self._partition = TopicPartition(stream.topic, stream.partition)
        config = settings(cluster, group, prefetch_bytes, fetch_wait)
        self._refusal, self._certificates = LoginRefusal(), Certificates(cluster)
        try:
            self._consumer = Consumer({**config, "error_cb": self._note})
        except KafkaException as error:  # the client refuses its settings, e.g. an unreadable certificate
            raise translate(error, f"connecting a reader of {stream}") from error
        self._login = Login(cluster)
        self._position = -1
        self._epoch = self._epoch_of = -1
        self._at_end = False
        self._positioned = False
        self._failure: tuple[KafkaError, int] | None = None
        self._event: KafkaError | None = None
        self._cut_off: KafkaError | None = None
        """That no broker can be reached; until something is read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def position(self) -> int:
        """The next offset to be read: all below was returned by `read`, or is a hole. -1 before the first `seek`."""
        return self._position

    @property
    def epoch(self) -> int:
        """The leader epoch of the position, with which a later `seek` to it finds out whether the log was cut; -1 when
        it is not known. That of the last message would not do: a marker of a later epoch may follow it."""
        return self._epoch if self._epoch_of == self._position else -1

    @property
    def at_end(self) -> bool:
        """The last `read` reached the last stable offset: beyond the position nothing was committed yet."""
        return self._at_end

    @property
    def log_end(self) -> int:
        """End of the stream as last heard from the broker, without asking it: the position when `at_end`, else the
        high watermark, which may include messages of open transactions."""
        if self._at_end:
            return self._position
        _, high = self._consumer.get_watermark_offsets(self._partition, cached=True)
        return max(self._position, high)

    @property
    def outdated(self) -> bool:
        """Whether its cluster's certificates were replaced since: once it cannot connect, another one can."""
        return self._certificates.replaced()

    def seek(self, offset: int, leader_epoch: int | None = None) -> None:
        """Continue at `offset`; keeps what is prefetched when it already is the position.

        With the `leader_epoch` of that position, `read` raises `LogTruncated` if the log was cut below it since. The
        client asks only when it learns of a leader, so of a reader that knows it already: not at all. `reaches` asks.
        """
        if self._positioned and offset == self._position:
            return
        target = TopicPartition(
            self.stream.topic, self.stream.partition, offset, "", -1 if leader_epoch is None else leader_epoch
        )
        self._consumer.assign([target])
        self._position, self._at_end, self._positioned = offset, False, True
        self._epoch, self._epoch_of = -1 if leader_epoch is None else leader_epoch, offset
        self._failure = self._event = None

    def read(self, max_messages: int, timeout: float) -> list[Message]:
        """The next messages in order; waits at most `timeout` seconds for the first one and for no other.

        May return none and yet move the position over a hole. Raises OffsetOutOfRange, Blocked (`LogTruncated`),
        Permanent (unknown topic, not authorized), Retryable (no broker reachable, login refused); nothing is lost by
        raising.
        """
        if self._failure is not None:
            raise self._explain(*self._failure)
        self._login.refresh(self._consumer)
        messages: list[Message] = self._consumer.consume(max_messages, 0)
        if not messages:
            first = self._consumer.poll(timeout)
            if first is None:
                self._raise_event()
                return []
            messages = [first]
            if max_messages > 1:
                messages += self._consumer.consume(max_messages - 1, 0)
        self._event = self._cut_off = None
        self._refusal.over()
        # A mapped C method costs 20 ns a message, a loop in Python five times that.
        if any(map(Message.error, messages)):
            messages = self._without_events(messages)
        else:
            self._at_end = False
        self._advance(messages)
        if self._failure is not None and not messages:
            raise self._explain(*self._failure)
        return messages

    def close(self) -> None:
        """Close its consumer; reading is not possible afterwards."""
        self._consumer.close()

    def _without_events(self, messages: list[Message]) -> list[Message]:
        """Only data, and the meaning of the rest: an end of the log moves the position, an error waits for the next
        read, so that what came before it is delivered."""
        data = []
        for message in messages:
            error, offset = message.error(), message.offset() or 0
            if error is None:
                data.append(message)
                self._at_end = False
            elif error.code() == KafkaError._PARTITION_EOF:
                self._position = max(self._position, offset)
                self._at_end = True
            else:
                self._failure = (error, offset)
        return data

    def _advance(self, messages: list[Message]) -> None:
        if messages:
            last = messages[-1].offset()
            assert last is not None  # data always has one
            self._position = max(self._position, last + 1)
        # The client's own position also passes the control record behind the last message.
        (known,) = self._consumer.position([self._partition])
        if known.offset >= self._position:
            epoch = known.leader_epoch
            self._position = self._epoch_of = known.offset
            self._epoch = -1 if epoch is None else epoch

    def _explain(self, error: KafkaError, offset: int) -> BlockhouseError:
        """The error to raise for `error` at `offset`. It is forgotten only once it is understood."""
        code = error.code()
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
            explained: BlockhouseError = self._out_of_range(error, offset)
        else:
            explained = translate(error, f"reading stream {self.stream} at {self._position}")
        self._failure = None
        # The client stops fetching after some errors and not after others: the next seek starts it in any case.
        self._positioned = False
        return explained

    def _out_of_range(self, reported: KafkaError, offset: int) -> BlockhouseError:
        """The client reports the same of a log that was cut (then without an offset) and of a position outside of
        the log: the bounds show which."""
        try:
            begin, end = self._consumer.get_watermark_offsets(self._partition, timeout=_QUERY_SECONDS)
        except KafkaException as error:
            raise translate(error, f"reading the bounds of stream {self.stream}") from error
        at = offset or self._position
        if begin <= at <= end:
            text = f"Kafka: stream {self.stream} was cut below offset {at} and written again: {reported.str()}; "
            return Blocked(text + "other messages took the place of what was read", reason="LogTruncated")
        return OffsetOutOfRange(self.stream, at, begin, end)

    def _note(self, error: KafkaError) -> None:
        self._refusal.note(error)
        if error.code() in _EXPLAINING:
            self._event = error
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._cut_off = error

    def _raise_event(self) -> None:
        event, self._event = self._event, None
        if event is None and self._cut_off is not None and self.outdated:
            event = self._cut_off  # which the client reports once, however often it fails to connect
        if event is not None:
            raise translate(self._refusal.behind(event), f"reading stream {self.stream} at {self._position}")
