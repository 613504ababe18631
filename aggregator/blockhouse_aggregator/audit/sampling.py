"""The continuous audit: windows of (stream, offset), taken by chance, compared with every replica by provenance.

Everything below a group's committed offset has been promised: it is stored or dead-lettered. That promise is all that
is taken from the aggregators; what was to be stored is read from Kafka itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Self

import numpy as np

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import BlockhouseError
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit.auditing import AuditSpec
from blockhouse_aggregator.audit.compare import Ints, Produced, compare, still_dead
from blockhouse_aggregator.audit.doubts import NONE
from blockhouse_aggregator.audit.produced import NO_TABLE, DeadLetterLog, read_window
from blockhouse_aggregator.audit.report import TableResult, table_result
from blockhouse_aggregator.audit.stored import StoredTables
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.kafka.group_offsets import committed_offsets

_PAUSE = 1.0
_RECENT = 0.5
"""Part of the windows that end at the committed offset: what was stored last is where something goes wrong first."""


@dataclass(frozen=True, slots=True)
class Window:
    """Offsets [begin, end) of one stream, and what was found of each table on each replica."""

    stream: StreamId
    begin: int
    end: int
    messages: int
    tables: tuple[TableResult, ...]

    @property
    def exact(self) -> bool:
        return all(table.exact for table in self.tables)

    @property
    def undecided(self) -> bool:
        """Not exact, and all that differs cannot be judged."""
        return not self.exact and all(table.exact or table.undecided for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        """`wrong` has the tables and replicas that differ, with the first offenders."""
        wrong = [
            {
                **{key: value for key, value in asdict(table).items() if key != "offenders"},
                "offenders": [asdict(o.example) for o in table.offenders],
            }
            for table in self.tables
            if not table.exact
        ]
        where = {"stream": str(self.stream), "begin": self.begin, "end": self.end, "messages": self.messages}
        return {**where, "exact": self.exact, "undecided": self.undecided, "wrong": wrong}


def choose(begin: int, committed: int, size: int, random: Random) -> tuple[int, int] | None:
    """A window of at most `size` offsets in [begin, committed); None when there is nothing."""
    if committed <= begin:
        return None
    last = max(begin, committed - size)
    start = last if random.random() < _RECENT else random.randint(begin, last)
    return start, min(start + size, committed)


class SampledAudit:
    """Takes windows until closed. `grace`: seconds a difference may last, for replicas fetch from each other later."""

    def __init__(self, spec: AuditSpec, group: str, *, size: int, grace: float, random: Random) -> None:
        self._spec, self._group = spec, group
        self._size, self._grace, self._random = size, grace, random
        self._replicas = [StoredTables(config) for config in spec.replicas]
        dead = spec.dead_letter_topic
        self._dead = {c.name: DeadLetterLog(c, dead, spec.topic) for c in spec.clusters} if dead else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as closing:
            for replica in self._replicas:
                closing.callback(replica.close)
            for dead in self._dead.values():
                closing.callback(dead.close)

    def take(self) -> Window | None:
        """Compare one window; None when nothing is committed in the cluster that was chosen.

        Raises BlockhouseError when a cluster or a replica cannot be read.
        """
        cluster = self._random.choice(self._spec.clusters)
        chosen = self._choose(cluster)
        if chosen is None:
            return None
        stream, begin, end = chosen
        topic_id = ClusterFacts(cluster).topic_id(stream.topic)
        produced = read_window(cluster, stream, begin, end, self._spec.database)
        dead = self._dead_letters(stream)
        until = time.monotonic() + self._grace
        while True:
            results = tuple(self._judge(stream, topic_id, (begin, end), produced, dead))
            messages = sum(len(of.offsets) for of in produced.values())
            window = Window(stream, begin, end, messages, results)
            if window.exact or time.monotonic() >= until:
                return window
            time.sleep(_PAUSE)

    def _choose(self, cluster: KafkaCluster) -> tuple[StreamId, int, int] | None:
        committed = committed_offsets(cluster, self._group, self._spec.topic)
        ours = sorted(stream for stream, at in committed.items() if at.offset)
        if not ours:
            return None
        stream = self._random.choice(ours)
        offset = committed[stream].offset
        assert offset is not None  # chosen because it has one
        window = choose(ClusterFacts(cluster).bounds(stream).begin, offset, self._size, self._random)
        return (stream, *window) if window else None

    def _dead_letters(self, stream: StreamId) -> Ints:
        if stream.cluster not in self._dead:
            return np.array([], np.int64)
        self._dead[stream.cluster].read()
        return self._dead[stream.cluster].offsets(stream.partition)

    def _judge(
        self,
        stream: StreamId,
        topic_id: str,
        bounds: tuple[int, int],
        produced: Mapping[str, Produced],
        dead: Ints,
    ) -> Iterator[TableResult]:
        tables = set(produced) - self._spec.ignore_tables
        for replica in self._replicas:
            existing = replica.existing(tables - {NO_TABLE})
            for table in sorted(tables):
                columns = existing.get(table)
                found = replica.window(table, columns, stream, topic_id, *bounds) if columns else replica.nothing()
                aside = still_dead(dead, found)
                live = produced[table].without(aside)
                yield table_result(
                    table,
                    replica.name,
                    exists=columns is not None,
                    messages=len(produced[table].offsets),
                    rows=int(live.rows.sum()),
                    dead_letters=int(np.isin(produced[table].offsets, aside).sum()),
                    differences=[(stream, compare(live, found))],
                    doubt=columns.doubt if columns else NONE,
                )


def watch(
    audit: SampledAudit,
    *,
    every: float,
    seconds: float | None,
    report: Callable[[Window], None],
    excuse: Callable[[BlockhouseError], None],
) -> tuple[int, int]:
    """Take a window `every` so many seconds, for `seconds` or until stopped. Returns how many were compared, and how
    many of them differed. `excuse` hears why a window could not be compared; that is no difference."""
    compared = wrong = 0
    begun = time.monotonic()
    while True:
        begun_window = time.monotonic()
        try:
            window = audit.take()
        except BlockhouseError as error:
            excuse(error)
        else:
            if window is not None:
                compared, wrong = compared + 1, wrong + (not window.exact and not window.undecided)
                report(window)
        left = None if seconds is None else begun + seconds - time.monotonic()
        if left is not None and left <= 0:
            return compared, wrong
        pause = max(0.0, begun_window + every - time.monotonic())
        time.sleep(pause if left is None else min(pause, left))
