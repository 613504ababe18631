"""How far behind each table was, in seconds: the age of its oldest message that was not stored.

It is at its worst just before a block is acknowledged. What aggregators log of their blocks and the timestamps of the
messages give it exactly, whereas a poll of the status page adds the time between two polls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.fetch import StreamReader
from e2e.pipeline import Pipeline
from e2e.stack.server import StackError

BATCH, ANSWER = 10_000, 5.0


@dataclass(frozen=True, slots=True)
class Stored:
    """A block was acknowledged at Unix time `at`; its oldest message has offset `begin`."""

    at: float
    stream: str
    table: str
    begin: int


@dataclass(frozen=True, slots=True)
class Aged:
    """A block of the table, whose oldest message was produced at Unix time `made`, was acknowledged at `at`. `stream`
    and `begin` are where that message lies."""

    table: str
    made: float
    at: float
    stream: str = ""
    begin: int = 0


class TableLags:
    """All blocks since a moment, each when it was stored for the first time."""

    def __init__(self, blocks: Sequence[Aged]) -> None:
        self._blocks = blocks

    def peak(self, tables: Collection[str], begin: float, end: float) -> float:
        """The most seconds one of the tables was behind between two Unix times; 0 when they had no messages."""
        worst = self.furthest(tables, begin, end)
        return min(worst.at, end) - worst.made if worst is not None else 0.0

    def furthest(self, tables: Collection[str], begin: float, end: float) -> Aged | None:
        """The block that was behind the most of those that `peak` compares."""
        return max(self._waiting(tables, begin, end), key=lambda b: min(b.at, end) - b.made, default=None)

    def percentile(self, tables: Collection[str], begin: float, end: float, percent: float) -> float:
        """How many seconds of age so many of a hundred blocks of `peak` did not exceed when they were stored."""
        ages = [b.at - b.made for b in self._waiting(tables, begin, end)]
        return float(np.percentile(ages, percent)) if ages else 0.0

    def _waiting(self, tables: Collection[str], begin: float, end: float) -> Iterator[Aged]:
        return (b for b in self._blocks if b.table in tables and b.at >= begin and b.made <= end)


def measure(pipeline: Pipeline, since: float) -> TableLags:
    """Of the blocks acknowledged from Unix time `since` on, as the aggregators, which log at level debug, report."""
    lines = (line for a in pipeline.aggregators.values() for line in a.logged("block.stored"))
    blocks = [block for block in first_stored(lines) if block.at >= since]
    if not blocks:
        raise StackError("the aggregators have logged no block: without their debug lines no lag can be measured")
    clusters = {cluster.name: cluster for cluster in pipeline.clusters}
    aged: list[Aged] = []
    for name in sorted({block.stream for block in blocks}):
        stream = StreamId.parse(name)
        of_stream = [block for block in blocks if block.stream == name]
        begin = min(block.begin for block in of_stream)
        times = message_times(clusters[stream.cluster], stream, begin, max(block.begin for block in of_stream) + 1)
        aged += [Aged(b.table, float(times[b.begin - begin]), b.at, name, b.begin) for b in of_stream]
    return TableLags(aged)


def first_stored(lines: Iterable[Mapping[str, Any]]) -> list[Stored]:
    """A block whose aggregator died is acknowledged to the next one once more: only the first time counts."""
    found: dict[tuple[str, str, int], Stored] = {}
    for line in lines:
        at = datetime.fromisoformat(line["timestamp"]).timestamp()
        block = Stored(at, line["stream"], line["table"], line["begin"])
        key = block.stream, block.table, block.begin
        found[key] = min(block, found.get(key, block), key=lambda b: b.at)
    return list(found.values())


def message_times(cluster: KafkaCluster, stream: StreamId, begin: int, end: int) -> npt.NDArray[np.float64]:
    """Unix times at which producers made the messages in [begin, end), by offset from `begin`; NaN for holes."""
    times = np.full(end - begin, np.nan)
    with StreamReader(cluster, stream) as reader:
        reader.seek(begin)
        while reader.position < end:
            position = reader.position
            messages = reader.read(BATCH, ANSWER)
            if reader.position == position:
                raise StackError(f"{stream}: nothing to read at offset {position}, below {end}")
            offsets = np.array([m.offset() for m in messages], dtype=np.int64)
            stamps = np.array([m.timestamp()[1] for m in messages], dtype=np.float64) / 1000
            inside = offsets < end
            times[offsets[inside] - begin] = stamps[inside]
    return times
