"""How far every owned stream is behind, asked of the brokers by the driver itself, and what stands still since when.

Nothing here depends on a task, a lease or the replica: while any of them is stuck the lag grows and its cause is named.
One loop per Kafka cluster asks; another reads all owners, so that a silent cluster delays no answer about another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog

from blockhouse.contract.aggregator import Standing
from blockhouse.errors import BlockhouseError
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.log_ends import Ends
from blockhouse_aggregator.protocol.state import TableState
from blockhouse_aggregator.runtime.clock import AwakeClock, loop_time
from blockhouse_aggregator.runtime.lag_figures import LagFigures, Measured, TableMeasured
from blockhouse_aggregator.runtime.ports import LogEnds
from blockhouse_aggregator.runtime.process import standing
from blockhouse_aggregator.runtime.process.log_history import LogHistory, Passed
from blockhouse_aggregator.runtime.process.standing import LagContext, Watched, Why
from blockhouse_aggregator.runtime.stream.owner import StreamOwner

log = structlog.get_logger(__name__)

PERIOD = 2.0
"""Seconds between two questions to the brokers of a cluster."""
LOOK = 1.0
"""Seconds between two reads of the owners."""
UNANSWERED = 6.0
"""Seconds after which a question without an answer counts as unanswered: the client does not return while a broker
hangs, whatever time-out it is given."""
SEEDS = (2.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)
"""Seconds before a takeover for which the brokers are asked where the log ended then."""


class Lag(NamedTuple):
    """Of one stream; each is None while it is not known. Times in seconds, or Unix milliseconds where named so.

    `silent`: the brokers were not heard lately, so that no message waits that is known of, and any number may."""

    ends: Ends | None = None
    ends_at_ms: int | None = None
    stored: int | None = None
    messages: int | None = None
    seconds: float | None = None
    by_rate: float | None = None
    arriving: float | None = None
    storing: float | None = None
    standing: Standing | None = None
    silent: bool = False


@dataclass(slots=True)
class _Seen:
    """What is known of one stream beside its owner's state."""

    watched: Watched
    heard: float
    """When, on the awake clock, its leader last answered, or it was first seen."""
    heard_at: float
    """The same on the loop's clock, which runs on while the process is suspended."""
    history: LogHistory = field(default_factory=LogHistory)
    ends: Ends | None = None
    ends_at_ms: int | None = None
    standing: Standing | None = None
    tables: dict[int, Watched] = field(default_factory=dict)

    def answered(self, ends: Ends, at_ms: int, heard: float) -> None:
        self.ends, self.ends_at_ms, self.heard, self.heard_at = ends, at_ms, heard, loop_time()

    def judged(self, standing: Standing | None) -> None:
        self.standing = standing


class LagWatch:
    """Of one aggregator. Used on the event loop only. `owners` and `cluster_errors` are read, never changed;
    `unfit` is why the replica takes no rows, empty while it does."""

    def __init__(
        self,
        ends: LogEnds,
        owners: Mapping[StreamId, StreamOwner],
        cluster_errors: Mapping[str, str],
        unfit: Callable[[], str],
        figures: LagFigures,
        now_ms: Callable[[], int],
    ) -> None:
        self._ends = ends
        self._owners = owners
        self._cluster_errors = cluster_errors
        self._unfit = unfit
        self._figures = figures
        self._now_ms = now_ms
        self._seen: dict[StreamId, _Seen] = {}
        self._silent: dict[str, str] = {}
        self._awake = AwakeClock(2 * LOOK)
        self._asked: dict[str, float] = {}
        """When, on the awake clock, the question began that a cluster has not answered yet."""

    def loops(self, clusters: Iterable[str]) -> Iterator[Coroutine[Any, Any, None]]:
        """All of its work; each part runs until it is cancelled."""
        yield self.look()
        yield from map(self.ask, clusters)

    async def ask(self, cluster: str) -> None:
        """Ask one cluster where its streams end, until cancelled."""
        while True:
            streams = [stream for stream in self._owners if stream.cluster == cluster]
            self._awake.tick()
            self._asked[cluster], held = self._awake.now(), self._awake.held()
            try:
                if streams:
                    self._answered(cluster, await self._ends.latest(cluster, streams))
                    await self._seed([s for s in streams if (seen := self._seen.get(s)) and not seen.history.seeded])
            except BlockhouseError as error:
                if self._awake.held() > held:
                    continue  # we were suspended: the answer may have come, and it is the client's time that was over
                if cluster not in self._silent:
                    log.warning("lag.unasked", cluster=cluster, error=str(error))
                self._silent[cluster] = str(error)
            del self._asked[cluster]
            await asyncio.sleep(PERIOD)

    def _silence(self, stream: StreamId, seen: _Seen) -> str:
        """Why no broker answers where the stream ends; empty while one does. The others of a cluster may answer while
        the stream's leader does not, or it has none."""
        now, cluster = self._awake.now(), stream.cluster
        seconds = now - self._asked.get(cluster, now)
        if seconds > UNANSWERED:
            return f"the brokers of cluster {cluster} have not answered for {seconds:.0f} s"
        if cluster in self._silent:
            return self._silent[cluster]
        if now - seen.heard > PERIOD + UNANSWERED:
            return f"no leader of it has answered for {now - seen.heard:.0f} s"
        return ""

    def _outdated(self, seen: _Seen) -> bool:
        """Whether the last answer is too old to claim that no message waits. Producers did not stop while this process
        was suspended, and of a suspended machine the loop's clock may have stood still: the older by either clock."""
        seconds = loop_time() - seen.heard_at
        if seen.ends_at_ms is not None:
            seconds = max(seconds, (self._now_ms() - seen.ends_at_ms) / 1000)
        return seconds > PERIOD + UNANSWERED

    async def look(self) -> None:
        """Read all owners, until cancelled."""
        while True:
            self.refresh()
            await asyncio.sleep(LOOK)

    def refresh(self) -> None:
        """Bring what stands still, and the metrics, up to date with the owners."""
        self._awake.tick()
        for stream in self._seen.keys() - self._owners.keys():
            del self._seen[stream]
        for stream, owner in self._owners.items():
            self._observe(stream, owner)
        self._figures.show(self._measured(), self._tables(), unfit=bool(self._unfit()))

    def of(self, stream: StreamId) -> Lag:
        """What is known of a stream now."""
        seen, owner = self._seen.get(stream), self._owners.get(stream)
        ends = seen.ends if seen is not None else None
        stored = standing.stored_below(owner) if owner is not None else None
        at_ms, still = (seen.ends_at_ms, seen.standing) if seen is not None else (None, None)
        silent = seen is not None and (bool(self._silence(stream, seen)) or self._outdated(seen))
        if seen is None or owner is None or stored is None or ends is None:
            return Lag(ends, at_ms, stored, None, None, None, None, None, still, silent)
        messages = standing.unstored(owner, max(ends.high, owner.log_end))
        if silent and not messages:
            return Lag(ends, at_ms, stored, None, None, None, None, None, still, silent)
        history = seen.history
        age = history.age(stored, loop_time()) if messages else 0.0
        catching_up = history.catching_up(messages)
        rates = history.arriving, history.storing
        return Lag(ends, at_ms, stored, messages, age, catching_up, *rates, still, silent)

    def table(self, stream: StreamId, table: TableState) -> tuple[Why, int]:
        """Why messages of a table of the stream are not stored, and since when, Unix milliseconds; 0: not known."""
        owner, seen = self._owners[stream], self._seen.get(stream)
        watched = seen.tables.get(table.table) if seen is not None else None
        return standing.why_table(owner, table), watched.since_ms if watched is not None else 0

    # --- what the brokers answer -------------------------------------------------------------------------------

    def _answered(self, cluster: str, found: Mapping[StreamId, Ends]) -> None:
        self._silent.pop(cluster, None)
        for stream, ends in found.items():
            owner = self._owners.get(stream)
            if owner is None:
                continue
            seen = self._seen_of(stream)
            seen.answered(ends, self._now_ms(), self._awake.now())
            seen.history.add(loop_time(), ends.high, standing.unstored(owner, ends.high))

    async def _seed(self, streams: Sequence[StreamId]) -> None:
        """Once for each stream: where its log ended before it was ours, so that old messages have their true age."""
        if not streams:
            return
        now, now_ms = loop_time(), self._now_ms()
        passed: dict[StreamId, list[Passed]] = {stream: [] for stream in streams}
        for seconds in sorted(SEEDS, reverse=True):
            for stream, offset in (
                await self._ends.at(streams[0].cluster, streams, now_ms - int(seconds * 1000))
            ).items():
                ends = seen.ends if (seen := self._seen.get(stream)) is not None else None
                if ends is not None:
                    passed[stream].append(Passed(now - seconds, offset if offset >= 0 else ends.high))
        for stream, samples in passed.items():
            if (seen := self._seen.get(stream)) is not None:
                seen.history.seed(samples)

    # --- what the owners show -------------------------------------------------------------------------------

    def _seen_of(self, stream: StreamId) -> _Seen:
        return self._seen.setdefault(stream, _Seen(Watched(None, self._now_ms()), self._awake.now(), loop_time()))

    def _observe(self, stream: StreamId, owner: StreamOwner) -> None:
        seen, now = self._seen_of(stream), self._now_ms()
        seen.watched.moved(_mark(owner), now)
        open_tables = {t.table: t for t in owner.state.tables} if owner.state is not None else {}
        for gone in seen.tables.keys() - open_tables.keys():
            del seen.tables[gone]
        for number, table in open_tables.items():
            watched = seen.tables.setdefault(number, Watched(None, now))
            watched.moved(standing.mark_of(table), now)
            if not table.pending:
                watched.nothing_waits(now)
        seen.judged(self._standing(owner, seen, now))

    def _standing(self, owner: StreamOwner, seen: _Seen, now: int) -> Standing | None:
        context = LagContext(
            cluster=self._cluster_errors.get(owner.stream.cluster, ""),
            brokers=self._silence(owner.stream, seen),
            replica=self._unfit(),
        )
        if owner.stop is None and (context.brokers or context.cluster):
            return standing.standing(standing.why_stream(owner, context, seen.ends), seen.ends_at_ms or now)
        waits = owner.state is None or (seen.ends is not None and standing.unstored(owner, seen.ends.high) > 0)
        if not waits:
            seen.watched.nothing_waits(now)
        long = now - seen.watched.since_ms > standing.patience(owner) * 1000
        if owner.stop is None and not long:
            return None
        return standing.standing(standing.why_stream(owner, context, seen.ends), seen.watched.since_ms)

    def _measured(self) -> Mapping[StreamId, Measured]:
        found = {}
        for stream, owner in self._owners.items():
            lag, state = self.of(stream), owner.state
            found[stream] = Measured(
                position=state.position if state is not None else None,
                stored=lag.stored,
                high=lag.ends.high if lag.ends is not None else None,
                stable=lag.ends.stable if lag.ends is not None else None,
                messages=lag.messages,
                seconds=lag.seconds,
                lagging=sum(t.cursor is not None for t in state.tables) if state is not None else None,
                in_flight=len(state.in_flight) if state is not None else None,
                standing=lag.standing,
            )
        return found

    def _tables(self) -> Mapping[tuple[str, str], TableMeasured]:
        """By table and reason, over all streams."""
        found: dict[tuple[str, str], TableMeasured] = {}
        for stream, owner in self._owners.items():
            ends = seen.ends if (seen := self._seen.get(stream)) is not None else None
            for table in owner.state.tables if owner.state is not None else ():
                if table.cursor is None:
                    continue
                distance = max(0, max(ends.high, owner.log_end) - table.cursor) if ends is not None else 0
                key = owner.context.catalog.name(table.table), standing.why_table(owner, table)[0]
                before = found.get(key, TableMeasured(0, 0))
                found[key] = TableMeasured(before.pending + table.pending, max(before.distance, distance))
        return found


def _mark(owner: StreamOwner) -> object:
    """What changes whenever anything of the stream is stored: not when more is read."""
    return (owner.stop, standing.stored_below(owner), owner.report.counters.blocks)
