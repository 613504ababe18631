"""Observes every aggregator twice a second, from outside, as any monitoring would: `/status` and `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from blockhouse.contract.aggregator import StatusPage, StreamStatus
from e2e.kit.tally import Tally, read_counters
from e2e.pipeline import AggregatorProcess, Pipeline
from e2e.stack.periodic import Periodic

INTERVAL = 0.5


@dataclass(frozen=True, slots=True)
class BlockInFlight:
    """An intent that is committed to Kafka, as `/status` shows it. `stream` is cluster/topic/partition."""

    stream: str
    table: str
    begin: int
    end: int
    stage: str


@dataclass(frozen=True, slots=True)
class Seen:
    """One aggregator at one moment. `condition`: down, frozen, starting or ready; `streams` has the state
    of each, `lags` the messages that are not stored, `unread` those up to the end of the log that were not read yet."""

    replica: str
    condition: str
    streams: Mapping[str, str]
    lags: Mapping[str, int]
    unread: Mapping[str, int]
    in_flight: tuple[BlockInFlight, ...]
    waiting_tables: frozenset[str]

    @property
    def lag(self) -> int:
        """Messages of its streams that are not stored, as far as it knows them."""
        return sum(self.lags.values())


class Watcher(Periodic):
    """Keeps what was last seen of each aggregator, and the tally: one of its own, if none is given. Thread-safe."""

    def __init__(self, pipeline: Pipeline, tally: Tally | None = None) -> None:
        super().__init__(self._look_everywhere, INTERVAL, name="watcher")
        self.tally = Tally() if tally is None else tally
        self._aggregators = pipeline.aggregators
        self._seen = {name: Seen(name, "starting", {}, {}, {}, (), frozenset()) for name in self._aggregators}
        self._pool = ThreadPoolExecutor(len(self._aggregators), thread_name_prefix="watch")

    @property
    def latest(self) -> tuple[Seen, ...]:
        return tuple(self._seen[name] for name in sorted(self._seen))

    def look(self, name: str) -> Seen:
        """Asks one aggregator now."""
        aggregator = self._aggregators[name]
        condition = "frozen" if aggregator.frozen else "starting" if aggregator.alive else "down"
        status: StatusPage | None = None
        if condition == "starting":
            status = aggregator.status()
            self._note_counters(aggregator)
            condition = "ready" if status is not None and status.ready else "starting"
        self._seen[name] = seen = read_status(name, condition, status)
        return seen

    def _note_counters(self, aggregator: AggregatorProcess) -> None:
        pid = aggregator.pid
        try:
            page = aggregator.get("/metrics")
        except OSError:  # it is dying, or not up yet: the last answer stands
            return
        if pid is not None:
            self.tally.note(aggregator.replica, pid, read_counters(page))

    def _look_everywhere(self) -> None:
        list(self._pool.map(self.look, self._aggregators))

    def over(self) -> None:
        self._pool.shutdown(wait=False)


def read_status(replica: str, condition: str, status: StatusPage | None) -> Seen:
    """What a status page reports; without one the aggregator owns nothing."""
    streams = status.streams if status is not None else ()
    return Seen(
        replica,
        condition,
        {s.stream: str(s.state) for s in streams},
        {s.stream: s.lag for s in streams if s.lag is not None},
        {s.stream: unread for s in streams if (unread := _unread(s)) is not None},
        tuple(BlockInFlight(s.stream, b.table, b.begin, b.end, b.stage) for s in streams for b in s.blocks),
        frozenset(table.table for s in streams for table in s.lagging_tables),
    )


def _unread(stream: StreamStatus) -> int | None:
    if stream.high_watermark is None or stream.position is None:
        return None
    return max(0, stream.high_watermark - stream.position)
