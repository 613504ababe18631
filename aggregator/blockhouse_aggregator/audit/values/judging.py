"""The comparison itself: chosen messages are read again from Kafka, and their rows from every replica."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Message

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse.schema.model import TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit.compare import Ints
from blockhouse_aggregator.audit.values.choosing import choose, merged
from blockhouse_aggregator.audit.values.reading import NotRead, Reader, reader
from blockhouse_aggregator.audit.values.report import TableValues, ValuesReport
from blockhouse_aggregator.audit.values.rows import MOST_ROWS, Portion, ReplicaValues, portions
from blockhouse_aggregator.blocks.routing import Route, Router
from blockhouse_aggregator.kafka.fetch import StreamReader
from blockhouse_aggregator.kafka.headers import headers_of
from blockhouse_aggregator.wire.formats import Format

_MESSAGES, _BYTES = 2_000, 4 << 20
"""Of one kind, at most, before they are compared: what is in memory at a time."""
_FAR = 2_000
"""Offsets that are read over rather than passed by a seek."""
_BATCH, _PATIENCE = 1_000, 30.0
_PREFETCH = 1 << 20

Progress = Callable[[int, int], None]
"""Called with how many messages were compared, and how many there are."""


@dataclass(frozen=True, slots=True)
class ValuesSpec:
    """`histories` by table: the pipeline's schema history. `sample`: about so many messages of each table, not all;
    `seed` decides which."""

    histories: Mapping[str, TableHistory]
    sample: int | None = None
    seed: int | None = None


class ValueAudit:
    """Compares the values of chosen messages with every replica. Errors are those of the clusters and replicas."""

    def __init__(
        self,
        spec: ValuesSpec,
        clusters: Mapping[str, KafkaCluster],
        replicas: Sequence[ReplicaValues],
        database: str,
        progress: Progress,
    ) -> None:
        self._spec = spec
        self._clusters = clusters
        self._replicas = replicas
        self._router = Router(database)
        self._progress = progress
        self._readers: dict[tuple[str, Format, int], Reader | str] = {}
        self._done = self._chosen = 0

    def compare(self, produced: Mapping[str, Mapping[StreamId, Ints]]) -> ValuesReport:
        """`produced`: the offsets of each table's messages that were to be stored, in each stream."""
        random = np.random.default_rng(self._spec.seed)
        by_stream: dict[StreamId, dict[str, Ints]] = {}
        for table, streams in sorted(produced.items()):
            for stream, offsets in zip(streams, choose([*streams.values()], self._spec.sample, random), strict=True):
                by_stream.setdefault(stream, {})[table] = offsets
        self._chosen = sum(len(offsets) for tables in by_stream.values() for offsets in tables.values())
        for replica in self._replicas:
            replica.prepare([table for table in produced if table in self._spec.histories], self._spec.histories)
        for stream, chosen in sorted(by_stream.items(), key=lambda item: str(item[0])):
            self._stream(stream, chosen)
        results = [result for replica in self._replicas for result in self._results(replica, produced)]
        of = sum(len(offsets) for streams in produced.values() for offsets in streams.values())
        return ValuesReport(self._chosen, of, tuple(sorted(results, key=lambda each: (each.table, each.replica))))

    def _results(self, replica: ReplicaValues, produced: Mapping[str, object]) -> Iterator[TableValues]:
        for table in sorted(produced):
            yield replica.result(table)

    def _stream(self, stream: StreamId, chosen: Mapping[str, Ints]) -> None:
        waiting: dict[Route, list[Message]] = {}
        size: dict[Route, int] = {}
        for message in read_chosen(self._clusters[stream.cluster], stream, merged(chosen)):
            route = self._router.route(headers_of(message))
            if not isinstance(route, Route):
                self._unread(route.table, f"messages refused by their headers ({route.reason})", 1)
                continue
            waiting.setdefault(route, []).append(message)
            size[route] = size.get(route, 0) + len(_value(message))
            if len(waiting[route]) >= _MESSAGES or size[route] >= _BYTES:
                self._judge(stream, route, waiting.pop(route))
                size.pop(route)
        for route, messages in waiting.items():
            self._judge(stream, route, messages)

    def _judge(self, stream: StreamId, route: Route, messages: Sequence[Message]) -> None:
        found = self._reader(route)
        if isinstance(found, str):
            self._unread(route.table, f"messages: {found}", len(messages))
        else:
            for portion in self._portions(stream, route, found, messages):
                for replica in self._replicas:
                    replica.judge(portion, found)
        self._done += len(messages)
        self._progress(self._done, self._chosen)

    def _portions(
        self, stream: StreamId, route: Route, found: Reader, messages: Sequence[Message]
    ) -> Iterator[Portion]:
        """The messages' rows, at most MOST_ROWS at a time."""
        waiting: list[tuple[int, int, Sequence[object]]] = []
        rows = 0
        for message in messages:
            offset, (_, moment) = message.offset(), message.timestamp()
            assert offset is not None  # data always has one
            try:
                read = found.rows(_value(message))
            except NotRead as error:
                self._unread(route.table, f"messages: {error}", 1)
                continue
            waiting.append((offset, moment, read))
            rows += len(read)
            if rows >= MOST_ROWS:
                yield from portions(stream, route.table, waiting)
                waiting, rows = [], 0
        yield from portions(stream, route.table, waiting)

    def _reader(self, route: Route) -> Reader | str:
        key = (route.table, route.form, route.revision)
        if key not in self._readers:
            history = self._spec.histories.get(route.table)
            if history is None or history.current is None:
                self._readers[key] = "the schema history does not have their table"
            else:
                try:
                    self._readers[key] = reader(route.form, history, history.revision(route.revision))
                except NotRead as error:
                    self._readers[key] = str(error)
        return self._readers[key]

    def _unread(self, table: str, reason: str, count: int) -> None:
        for replica in self._replicas:
            replica.result(table).rest[reason] += count


def read_chosen(cluster: KafkaCluster, stream: StreamId, offsets: Ints) -> Iterator[Message]:
    """The messages of one stream at these rising offsets, as far as they still are there."""
    if not len(offsets):
        return
    with StreamReader(cluster, stream, group="blockhouse-audit", prefetch_bytes=_PREFETCH, fetch_wait=0.05) as log:
        log.seek(int(offsets[0]))
        heard = time.monotonic()
        while True:
            at = int(np.searchsorted(offsets, log.position))
            if at == len(offsets):
                return
            if offsets[at] - log.position > _FAR:
                log.seek(int(offsets[at]))
            before = log.position
            messages = log.read(_BATCH, 1.0)
            if log.position > before:
                heard = time.monotonic()
            elif time.monotonic() - heard > _PATIENCE:
                raise Retryable(f"Kafka: nothing came of {stream} at {before} for {_PATIENCE:g} s")
            places = np.array([message.offset() for message in messages], np.int64)
            for index in np.flatnonzero(np.isin(places, offsets)).tolist():
                yield messages[index]


def _value(message: Message) -> bytes:
    value = message.value()
    return value if isinstance(value, bytes) else b""
