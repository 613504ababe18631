"""What the Kafka logs of one cluster hold: which message is of which table and has how many rows.

Reads with `read_committed`, outside of any group, from the log's start, and can continue from where it was. It counts a
message's rows by its structure alone, without the schema: so it does not share a mistake with the aggregator's decoder.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller
from typing import Any, assert_never

import numpy as np
from confluent_kafka import Message
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit.compare import Ints, Produced
from blockhouse_aggregator.blocks.routing import Misrouted, Route, Router
from blockhouse_aggregator.kafka.dead_letters import REPLAYED
from blockhouse_aggregator.kafka.facts import Bounds, ClusterFacts
from blockhouse_aggregator.kafka.fetch import StreamReader
from blockhouse_aggregator.kafka.headers import Unreadable, headers_of, runs
from blockhouse_aggregator.wire.formats import Format
from blockhouse_aggregator.wire.nucolumnar_messages import request_class

NO_TABLE = ""
"""Stands for the table of messages that name none: they can only be dead-lettered."""
_BATCH = 5_000
_offset, _value = methodcaller("offset"), methodcaller("value")
_PATIENCE = 30.0


class _Messages:
    """Offsets and row counts of one table in one stream, growing: 16 bytes a message."""

    def __init__(self) -> None:
        self.offsets = array("q")
        self.rows = array("q")


class ProducedLog:
    """The messages of a topic in one cluster. `read` before anything else; `close` when done.

    Errors are Retryable (cluster unreachable) or Permanent (no such topic, not authorized).
    """

    def __init__(self, cluster: KafkaCluster, topic: str, database: str) -> None:
        self.cluster = cluster.name
        self.topic_id = ""
        """Of the topic that was read."""
        self._facts = ClusterFacts(cluster)
        self._topic = topic
        self._tail = TopicTail(cluster, topic)
        self._router = Router(database)
        self._tables: dict[tuple[str, int], _Messages] = {}

    def read(self) -> None:
        """Read every stream up to its present end. Raises Permanent when the topic is not the one that was read before:
        its offsets would mean other messages."""
        found = self._facts.topic_id(self._topic)
        if self.topic_id and found != self.topic_id:
            raise Permanent(
                f"topic {self._topic} of {self.cluster} was created again meanwhile", reason="TopicRecreated"
            )
        self.topic_id = found
        for stream, messages in self._tail.read():
            self._note(stream, messages)

    @property
    def bounds(self) -> dict[int, Bounds]:
        """What has been read of each partition: [begin, end)."""
        return dict(self._tail.bounds)

    @property
    def tables(self) -> set[str]:
        return {table for table, _ in self._tables}

    def produced(self, table: str, partition: int) -> Produced:
        """The table's messages in one partition, as far as read."""
        found = self._tables.get((table, partition), _Messages())
        return Produced(_ints(found.offsets), _ints(found.rows))

    def close(self) -> None:
        self._tail.close()

    def _note(self, stream: StreamId, messages: Sequence[Message]) -> None:
        for headers, run in runs(messages):
            route = self._router.route(headers)
            table = self._tables.setdefault((route.table, stream.partition), _Messages())
            table.offsets.extend(map(_offset, run))
            table.rows.extend(_rows(route, value) for value in map(_value, run))


def read_window(
    cluster: KafkaCluster, stream: StreamId, begin: int, end: int, database: str, default_format: str = Format.ROWS
) -> dict[str, Produced]:
    """The messages of one stream in [begin, end), by table. Errors are as the reader's."""
    router = Router(database, Format(default_format))
    found: dict[str, _Messages] = {}
    reader = StreamReader(cluster, stream, group="blockhouse-audit", prefetch_bytes=4 << 20)
    try:
        reader.seek(begin)
        for messages in _until(reader, end):
            for message in messages:
                offset, value = message.offset(), message.value()
                if offset is not None and offset < end:
                    route = router.route(headers_of(message))
                    table = found.setdefault(route.table, _Messages())
                    table.offsets.append(offset)
                    table.rows.append(_rows(route, value))
    finally:
        reader.close()
    return {table: Produced(_ints(of.offsets), _ints(of.rows)) for table, of in found.items()}


class DeadLetterLog:
    """Which messages of `topic` are in the dead-letter topic of one cluster; copies of one message count once."""

    def __init__(self, cluster: KafkaCluster, dead_letter_topic: str, topic: str) -> None:
        self._topic = topic
        self._cluster = cluster.name
        self._tail = TopicTail(cluster, dead_letter_topic)
        self._facts = ClusterFacts(cluster)
        self._topic_id = ""
        self._offsets: dict[int, set[int]] = {}
        self._replayed: dict[int, set[int]] = {}

    def read(self) -> None:
        """Read on up to the present end; a topic that does not exist (yet) is an empty one."""
        self._topic_id = self._topic_id or self._facts.topic_id(self._topic)
        try:
            for _, messages in self._tail.read():
                for message in messages:
                    self._note(message.key(), replayed=is_mark(message))
        except Permanent as error:
            if error.reason != "UnknownTopic":
                raise

    def offsets(self, partition: int) -> Ints:
        """Of the dead-lettered messages of a partition, as far as read; rising."""
        return np.array(sorted(self._offsets.get(partition, ())), np.int64)

    def open(self, partition: int) -> Ints:
        """Those of them that were not sent again."""
        return np.array(sorted(self._offsets.get(partition, set()) - self._replayed.get(partition, set())), np.int64)

    def close(self) -> None:
        """Close its consumers; reading is not possible afterwards."""
        self._tail.close()

    def _note(self, key: object, *, replayed: bool = False) -> None:
        """Keys are `cluster/topic/partition/offset@topic-id`, without the id in letters of older versions; those of an
        older topic of the name, and whatever else is there, are none of ours."""
        text = key.decode(errors="replace") if isinstance(key, bytes) else str(key)
        place, _, topic_id = text.partition("@")
        stream_text, _, offset = place.rpartition("/")
        if topic_id and topic_id != self._topic_id:
            return
        try:
            stream = StreamId.parse(stream_text)
            number = int(offset)
        except ValueError:
            return
        if (stream.cluster, stream.topic) == (self._cluster, self._topic):
            self._offsets.setdefault(stream.partition, set()).add(number)
            if replayed:
                self._replayed.setdefault(stream.partition, set()).add(number)


def is_mark(message: Message) -> bool:
    """Whether a record of a dead-letter topic marks its letter as sent again. A letter may be of a message with a
    header of that name; a mark has no other."""
    headers = headers_of(message)
    return not isinstance(headers, Unreadable) and [name for name, _ in headers] == [REPLAYED]


class TopicTail:
    """Reads all partitions of a topic up to their ends, one after the other, and later on from there."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._facts = ClusterFacts(cluster)
        self._readers: dict[int, StreamReader] = {}
        self.bounds: dict[int, Bounds] = {}

    def read(self) -> Iterator[tuple[StreamId, list[Message]]]:
        """Messages in batches. When an error ends it, the next call continues behind the last batch that was taken."""
        for partition in range(self._facts.topic(self._topic).partitions):
            stream = StreamId(self._cluster.name, self._topic, partition)
            found = self._facts.bounds(stream)
            known = self.bounds.get(partition, Bounds(found.begin, found.begin))
            begin, at = known.begin, known.end
            self.bounds[partition] = Bounds(begin, at)
            if found.end > at:
                for messages in _until(self._reader(stream, at), found.end):
                    yield stream, messages
                    self.bounds[partition] = Bounds(begin, max(at, self._readers[partition].position))

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()

    def _reader(self, stream: StreamId, at: int) -> StreamReader:
        reader = self._readers.get(stream.partition)
        if reader is None:
            reader = self._readers[stream.partition] = StreamReader(self._cluster, stream, group="blockhouse-audit")
        reader.seek(at)
        return reader


def _until(reader: StreamReader, end: int, clock: Callable[[], float] = time.monotonic) -> Iterator[list[Message]]:
    """Batches up to `end`; the last one may go beyond it. Raises Retryable when the broker falls silent."""
    heard = clock()
    while reader.position < end:
        before = reader.position
        messages = reader.read(_BATCH, 1.0)
        if reader.position > before:
            heard = clock()
            yield messages
        elif clock() - heard > _PATIENCE:
            raise Retryable(f"Kafka: nothing came of {reader.stream} at {before} (its end is {end}) for {_PATIENCE} s")


def _row_batch() -> type[Any]:
    """`message RowBatch { repeated bytes rows = 1; }`: rows are counted without looking into them."""
    file = FileDescriptorProto(name="blockhouse.audit.proto", package="blockhouse.audit", syntax="proto3")
    file.message_type.add(name="RowBatch").field.add(
        name="rows", number=1, label=FieldDescriptorProto.LABEL_REPEATED, type=FieldDescriptorProto.TYPE_BYTES
    )
    described = DescriptorPool().AddSerializedFile(file.SerializeToString())
    return GetMessageClass(described.message_types_by_name["RowBatch"])


_ROW_BATCH = _row_batch()
_REQUEST: Any = request_class(0)
"""Of format `nucolumnar`: what is in the lists it does not know is none of the count's business."""


def _rows(route: Route | Misrouted, value: object) -> int:
    payload = value if isinstance(value, bytes) else b""
    return count_rows(payload, route.form if isinstance(route, Route) else Format.ROWS)


def count_rows(payload: bytes, form: Format = Format.ROWS) -> int:
    """Rows of a message. One that cannot be counted counts as one: it must not vanish either."""
    try:
        match form:
            case Format.JSON:
                return sum(1 for line in payload.split(b"\n") if line.strip(b" \t\r"))
            case Format.NUCOLUMNAR:
                request = _REQUEST.FromString(payload)
                return 1 if request.HasField("clickHouseEncoding") else len(request.nucolumnarEncoding.batch_bindings)
            case Format.ROWS:
                return len(_ROW_BATCH.FromString(payload).rows) or (1 if payload else 0)
            case _:
                assert_never(form)
    except DecodeError:
        return 1


def _ints(values: array[int]) -> Ints:
    return np.array(values, np.int64)
