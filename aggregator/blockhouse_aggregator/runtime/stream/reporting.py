"""What one stream reports: log lines, metrics and the counters of the status page. It decides nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import assert_never

import structlog

from blockhouse.metadata.model import Metadata
from blockhouse.streams import StreamId
from blockhouse_aggregator.gate.messages import BlockKey, BuiltBlock, LettersWritten
from blockhouse_aggregator.protocol.commits import Applied, CommitOutcome, Refused, Unknown
from blockhouse_aggregator.protocol.events import Alarm
from blockhouse_aggregator.protocol.state import StreamState
from blockhouse_aggregator.protocol.takeover import Stop
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.series import end, labels_of
from blockhouse_aggregator.runtime.stream.letters_written import StreamLetters
from blockhouse_aggregator.runtime.stream.outcomes import Condemned, Stored, TryAgain
from blockhouse_aggregator.runtime.stream.ownership_history import OwnershipHistory
from blockhouse_aggregator.runtime.tables.catalog import Catalog

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Counters:
    """For the status page; the same numbers are metrics."""

    blocks: int = 0
    rows: int = 0
    replays: int = 0
    deduplicated: int = 0
    by_provenance: int = 0
    dead: int = 0
    rounds: int = 0

    def count(self, **more: int) -> None:
        """Add to the counters named. Caller: the report of the stream."""
        for name, number in more.items():
            setattr(self, name, getattr(self, name) + number)


class StreamReport:
    """Reports on one stream while one owner has it."""

    def __init__(
        self,
        stream: StreamId,
        figures: Figures,
        catalog: Catalog,
        history: OwnershipHistory,
        now_ms: Callable[[], int],
    ) -> None:
        self._figures = figures
        self._history = history
        self._catalog = catalog
        self.label = str(stream)
        self._labels = labels_of(stream)
        self.counters = Counters()
        self.alarms: deque[Alarm] = deque(maxlen=20)
        self.letters = StreamLetters(self.label, now_ms)
        self.troubles: dict[str, str] = {}
        """By table: what the last try to store its block met, until one is stored."""
        self._blocked: frozenset[tuple[str, str]] = frozenset()
        self._hazards: frozenset[str] = frozenset()

    def started(
        self, epoch: int, state: StreamState, after: Stop | None, found: Metadata | None, accepted: str
    ) -> None:
        """The stream is taken over, `after` it had stopped; `found` and `accepted` as in the history."""
        if after is not None:
            end(self._figures.stopped, *self._labels, after.reason)
        self._identity(state)
        self._history.began(self.label, epoch, state, self._catalog.name, found=found, accepted=accepted)
        self._figures.dead.labels(*self._labels)  # 0 from the start: Prometheus counts no increase to a first value
        before = state.recorded.window.holes if state.recorded is not None else 0
        self._figures.holes.labels(*self._labels).inc(state.window.holes - before)
        log.info(
            "stream.taken_over",
            stream=self.label,
            epoch=epoch,
            position=state.position,
            seq=state.seq,
            replays=len(state.in_flight),
        )

    def _identity(self, state: StreamState | None) -> None:
        """What cannot be checked of the stream's log: a cut, or a topic created again, would go unnoticed."""
        now: set[str] = set()
        if state is not None and not state.topic_id:
            now.add("TopicIdMissing")
        if state is not None and state.leader_epoch < 0 and state.position > state.window.reference:
            now.add("LeaderEpochUnknown")
        for reason in self._hazards - now:
            end(self._figures.stream_hazards, *self._labels, reason)
        for reason in now - self._hazards:
            self._figures.stream_hazards.labels(*self._labels, reason).set(1)
        for reason in sorted(now - self._hazards):
            log.warning("stream.hazard", stream=self.label, reason=reason)
        self._hazards = frozenset(now)

    def stopped(self, before: Stop | None, stop: Stop) -> None:
        """It stops for `stop`, `before` being why it had stopped until now; None: it had not."""
        if before is not None:
            end(self._figures.stopped, *self._labels, before.reason)
        log.error("stream.stopped", stream=self.label, reason=stop.reason, message=stop.message)
        self._figures.alarms.labels(stop.reason).inc()
        self._figures.stopped.labels(*self._labels, stop.reason).set(1)

    def closed(self, epoch: int, why: str, stop: Stop | None) -> None:
        """Its owner of that epoch has it no longer; `stop` is why it had stopped, if it had."""
        self.blocked(None)
        self._identity(None)
        end(self._figures.metadata_units, *self._labels)
        self._history.ended(self.label, epoch, why)
        log.info("stream.closed", stream=self.label, epoch=epoch, why=why)
        if stop is not None:
            end(self._figures.stopped, *self._labels, stop.reason)

    def blocked(self, state: StreamState | None) -> None:
        """Which tables have a block that waits for a person's decision now; None when the stream is not ours."""
        now = frozenset(
            (self._catalog.name(table.table), table.block.reason)
            for table in (state.in_flight if state is not None else ())
            if table.block is not None and table.block.reason
        )
        for table, reason in self._blocked - now:
            end(self._figures.table_blocked, *self._labels, table, reason)
        for table, reason in now - self._blocked:
            self._figures.table_blocked.labels(*self._labels, table, reason).set(1)
        self._blocked = now

    def alarm(self, *alarms: Alarm) -> None:
        """What a person has to decide or repair."""
        for alarm in alarms:
            self.alarms.append(alarm)
            table = self._catalog.name(alarm.table) if alarm.table is not None else None
            self._figures.alarms.labels(alarm.reason).inc()
            log.error("alarm", stream=self.label, reason=alarm.reason, table=table, message=alarm.message)

    def round(self, before: StreamState, after: StreamState, letters: Iterable[LettersWritten]) -> None:
        """A round was sealed: what it moved."""
        figures = self._figures
        dead = after.window.dead - before.window.dead
        self.counters.count(rounds=1, dead=dead)
        self.letters.written(letters)
        self._identity(after)
        figures.messages.labels(*self._labels).inc(after.window.sealed - before.window.sealed)
        figures.dead.labels(*self._labels).inc(dead)
        figures.holes.labels(*self._labels).inc(after.window.holes - before.window.holes)

    def committed(self, outcome: CommitOutcome, units: int) -> None:
        """What became of a commit of metadata of so many UTF-16 units."""
        reason = ""
        match outcome:
            case Applied():
                answer = "committed"
            case Refused(reason=reason):
                answer = "refused"
            case Unknown(reason=reason):
                answer = "unknown"
            case _:
                assert_never(outcome)
        self._figures.commits.labels(*self._labels, answer).inc()
        self._figures.metadata_units.labels(*self._labels).set(units)
        if reason:
            log.warning("stream.commit", stream=self.label, outcome=answer, reason=reason)

    def replayed(self) -> None:
        """A block of an earlier owner was built again."""
        self.counters.count(replays=1)
        self._figures.replays.labels(*self._labels).inc()

    def stored(self, block: BlockKey, built: BuiltBlock | None, outcome: Stored, now_ms: int) -> None:
        """A block was acknowledged. `built` is None when its bytes were never needed."""
        figures, result, table = self._figures, outcome.result, block.table
        log.debug("block.stored", stream=self.label, table=table, begin=block.begin, end=block.end)
        self.counters.count(blocks=1)
        self.troubles.pop(table, None)
        figures.blocks.labels(table).inc()
        figures.last_insert.labels(table).set(now_ms / 1000)
        if result is not None:
            figures.lock_wait.observe(outcome.lock_wait)
            figures.insert_seconds.observe(result.elapsed)
            if result.deduplicated:
                self.counters.count(deduplicated=1)
                figures.deduplicated.labels(*self._labels).inc()
        if outcome.by_provenance:
            self.counters.count(by_provenance=1)
            figures.by_provenance.labels(*self._labels).inc()
        if built is not None:
            self.counters.count(rows=built.rows)
            figures.rows.labels(table).inc(built.rows)
            figures.block_bytes.labels(table).inc(built.size)
            if built.oldest_ms >= 0:  # negative: messages without a timestamp
                figures.latency.observe(max(0.0, (now_ms - built.oldest_ms) / 1000))

    def waits(self, table: str, why: str) -> None:
        """A block could not be tried yet; it is tried again."""
        log.info("block.waits", stream=self.label, table=table, why=why)
        self.troubles[table] = why[:300]

    def surplus(self, table: str, table_id: int, block: str, rows: int) -> None:
        """So many rows of a block are stored more than once."""
        self._figures.surplus.labels(table).inc(rows)
        self.alarm(Alarm("DuplicateRows", f"block {block}: {rows} rows too many", table_id))

    def condemned(self, table: str, outcome: Condemned) -> None:
        """A block of the table can never be inserted."""
        log.error("block.condemned", stream=self.label, table=table, reason=outcome.reason, why=outcome.message)

    def failed(self, table: str, outcome: TryAgain) -> None:
        """A block of the table was not stored this time."""
        answered = outcome.result.code if outcome.result is not None else None
        cause = outcome.cause
        self._figures.inserts_failed.labels(table, cause).inc()
        named = not answered or f"ClickHouse error {answered}:" in outcome.message
        self.troubles[table] = outcome.message[:300] if named else f"{answered}: {outcome.message[:300]}"
        log.warning("block.insert_failed", stream=self.label, table=table, code=cause, why=outcome.message[:300])
