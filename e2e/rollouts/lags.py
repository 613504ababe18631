"""How far behind each table is, in seconds, seen from outside: the age of its oldest message that is not stored.

Only status pages and the brokers' log ends are read. Between two looks an age is taken at its worst, so a figure may be
half a second too large and never too small.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from blockhouse.errors import Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.facts import ClusterFacts
from e2e.demo.tally import Tally, read_counters
from e2e.pipeline import Pipeline
from e2e.stack.periodic import Periodic

INTERVAL = 0.5


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds each table is behind, at Unix time `at`."""

    at: float
    behind: Mapping[str, float]


class TableLags(Periodic):
    """A context manager; a thread of its own. `tables` are full names."""

    def __init__(self, pipeline: Pipeline, tables: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        super().__init__(self._look, INTERVAL, name="lags")
        self.samples: list[Sample] = []
        self.tally = Tally()
        self._pipeline = pipeline
        self._tables = tables
        self._clock = clock
        self._stored: dict[tuple[str, str], int] = defaultdict(int)
        self._times: dict[str, list[float]] = defaultdict(list)
        self._ends: dict[str, list[int]] = defaultdict(list)
        self._facts = {cluster.name: ClusterFacts(cluster) for cluster in pipeline.clusters}

    def peak(self, table: str, begin: float, end: float) -> float:
        """The most seconds the table was behind between two Unix times."""
        return max((s.behind[table] for s in self.samples if begin <= s.at <= end), default=0.0)

    def latest(self) -> float:
        """The most seconds any table is behind now; infinite before the first look."""
        return max(self.samples[-1].behind.values()) if self.samples else float("inf")

    def _look(self) -> None:
        self._note_ends()
        for aggregator in self._pipeline.aggregators.values():
            for stream in aggregator.streams():
                if "position" in stream:
                    self._note_stored(stream)
            pid = aggregator.pid
            with suppress(OSError):  # it is dying, or not up yet
                if pid is not None:
                    self.tally.note(aggregator.replica, pid, read_counters(aggregator.get("/metrics")))
        now = self._clock()
        self.samples.append(Sample(now, {table: self._behind(table, now) for table in self._tables}))

    def _note_ends(self) -> None:
        for cluster, facts in self._facts.items():
            for partition in range(self._pipeline.spec.partitions):
                stream = StreamId(cluster, self._pipeline.spec.topic, partition)
                now = self._clock()
                with suppress(Retryable):
                    end = facts.bounds(stream).end
                    self._times[str(stream)].append(now)
                    self._ends[str(stream)].append(end)

    def _note_stored(self, stream: Mapping[str, Any]) -> None:
        for table in self._tables:
            blocks = [block["begin"] for block in stream["inFlight"] if block["table"] == table]
            cursors = [lagging["cursor"] for lagging in stream["lagging"] if lagging["table"] == table]
            key = stream["stream"], table
            self._stored[key] = max(self._stored[key], min([stream["position"], *blocks, *cursors]))

    def _behind(self, table: str, now: float) -> float:
        return max(
            (age(self._times[stream], ends, self._stored[stream, table], now) for stream, ends in self._ends.items()),
            default=0.0,
        )


def age(times: Sequence[float], ends: Sequence[int], stored: int, now: float) -> float:
    """How long ago the message at offset `stored` can have come at the earliest; 0 when there is none yet.

    `ends` are the ends of the log at `times`: with ends 10, 25 at 1 s, 2 s the message 12 came after 1 s.
    """
    if not ends or stored >= ends[-1]:
        return 0.0
    return now - times[max(0, bisect_right(ends, stored) - 1)]
