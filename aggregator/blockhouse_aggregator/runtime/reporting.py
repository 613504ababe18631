"""What one stream tells the world: log lines, metrics and the counters of the status page. It decides nothing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import structlog

from blockhouse.streams import StreamId
from blockhouse_aggregator.gate.messages import BlockKey, BuiltBlock, Sealed
from blockhouse_aggregator.protocol.events import Alarm
from blockhouse_aggregator.protocol.state import StreamState
from blockhouse_aggregator.protocol.takeover import Stop
from blockhouse_aggregator.runtime.catalog import Catalog
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.storing import Verdict

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


class StreamReport:
    """Reports on one stream while one owner has it."""

    def __init__(self, stream: StreamId, figures: Figures, catalog: Catalog) -> None:
        self._figures = figures
        self._catalog = catalog
        self.label = str(stream)
        self.counters = Counters()
        self.alarms: deque[Alarm] = deque(maxlen=20)
        self._blocked: frozenset[tuple[str, str]] = frozenset()

    def started(self, epoch: int, state: StreamState, after: Stop | None) -> None:
        if after is not None:
            self._figures.stopped.labels(self.label, after.reason).set(0)
        before = state.recorded.window.holes if state.recorded is not None else 0
        self._figures.holes.labels(self.label).inc(state.window.holes - before)
        log.info(
            "stream.taken_over",
            stream=self.label,
            epoch=epoch,
            position=state.position,
            seq=state.seq,
            replays=len(state.in_flight),
        )

    def stopped(self, before: Stop | None, stop: Stop) -> None:
        if before is not None:
            self._figures.stopped.labels(self.label, before.reason).set(0)
        log.error("stream.stopped", stream=self.label, reason=stop.reason, message=stop.message)
        self._figures.alarms.labels(stop.reason).inc()
        self._figures.stopped.labels(self.label, stop.reason).set(1)

    def closed(self, epoch: int, why: str, stop: Stop | None) -> None:
        self.blocked(None)
        log.info("stream.closed", stream=self.label, epoch=epoch, why=why)
        if stop is not None:
            self._figures.stopped.labels(self.label, stop.reason).set(0)

    def blocked(self, state: StreamState | None) -> None:
        """Which tables have a block that waits for somebody's decision now; None when the stream is not ours."""
        now = frozenset(
            (self._catalog.name(table.table), table.block.reason)
            for table in (state.in_flight if state is not None else ())
            if table.block is not None and table.block.reason
        )
        for table, reason in self._blocked ^ now:
            self._figures.table_blocked.labels(self.label, table, reason).set((table, reason) in now)
        self._blocked = now

    def alarm(self, *alarms: Alarm) -> None:
        for alarm in alarms:
            self.alarms.append(alarm)
            table = self._catalog.name(alarm.table) if alarm.table is not None else None
            self._figures.alarms.labels(alarm.reason).inc()
            log.error("alarm", stream=self.label, reason=alarm.reason, table=table, message=alarm.message)

    def round(self, sealed: Sealed, before: StreamState, after: StreamState) -> None:
        """A round was sealed: what it moved."""
        figures = self._figures
        dead = after.window.dead - before.window.dead
        self.counters.rounds += 1
        self.counters.dead += dead
        figures.messages.labels(self.label).inc(after.window.sealed - before.window.sealed)
        figures.dead.labels(self.label).inc(dead)
        figures.holes.labels(self.label).inc(after.window.holes - before.window.holes)
        figures.position.labels(self.label).set(after.position)
        figures.lag.labels(self.label).set(max(0, max(sealed.log_end, sealed.stop) - after.position))
        figures.lagging.labels(self.label).set(sum(t.cursor is not None for t in after.tables))
        figures.in_flight.labels(self.label).set(len(after.in_flight))

    def committed(self, outcome: str, reason: str, units: int) -> None:
        self._figures.commits.labels(self.label, outcome).inc()
        self._figures.metadata_units.labels(self.label).set(units)
        if reason:
            log.warning("stream.commit", stream=self.label, outcome=outcome, reason=reason)

    def replayed(self) -> None:
        self.counters.replays += 1
        self._figures.replays.labels(self.label).inc()

    def stored(self, block: BlockKey, built: BuiltBlock | None, verdict: Verdict, now_ms: int) -> None:
        """A block was acknowledged. `built` is None when its bytes were never needed."""
        figures, result, table = self._figures, verdict.result, block.table
        log.debug("block.stored", stream=self.label, table=table, begin=block.begin, end=block.end)
        self.counters.blocks += 1
        figures.blocks.labels(table).inc()
        figures.last_insert.labels(table).set(now_ms / 1000)
        if result is not None:
            figures.lock_wait.observe(verdict.lock_wait)
            figures.insert_seconds.observe(result.elapsed)
            if result.deduplicated:
                self.counters.deduplicated += 1
                figures.deduplicated.labels(self.label).inc()
        if verdict.by_provenance:
            self.counters.by_provenance += 1
            figures.by_provenance.labels(self.label).inc()
        if built is not None:
            self.counters.rows += built.rows
            figures.rows.labels(table).inc(built.rows)
            figures.block_bytes.labels(table).inc(built.size)
            if built.oldest_ms >= 0:  # negative: messages without a timestamp
                figures.latency.observe(max(0.0, (now_ms - built.oldest_ms) / 1000))

    def surplus(self, table: str, table_id: int, block: str, rows: int) -> None:
        self._figures.surplus.labels(table).inc(rows)
        self.alarm(Alarm("DuplicateRows", f"block {block}: {rows} rows too many", table_id))

    def condemned(self, table: str, verdict: Verdict) -> None:
        log.error("block.condemned", stream=self.label, table=table, reason=verdict.condemned, why=verdict.message)

    def failed(self, table: str, verdict: Verdict) -> None:
        code = str(verdict.result.code) if verdict.result and verdict.result.code else verdict.fault or "none"
        self._figures.inserts_failed.labels(table, code).inc()
        log.warning("block.insert_failed", stream=self.label, table=table, code=code, why=verdict.message[:300])
