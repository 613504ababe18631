"""One stream while we own it: keeps the protocol state and carries out its effects.

The rules are in `protocol/`; this module only performs them in order: commit, then grant, then acknowledge. When the
stream is dropped, everything here is void at once (I6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.metadata import codec
from blockhouse.streams import StreamId
from blockhouse_aggregator.gate.messages import Sealed
from blockhouse_aggregator.protocol import takeover
from blockhouse_aggregator.protocol.events import (
    Alarm,
    Commit,
    CommitRefused,
    CommitSucceeded,
    CommitUnknown,
    Effect,
    Event,
    Flush,
    Insert,
    Rebuild,
    Rejoin,
    Scanned,
)
from blockhouse_aggregator.protocol.state import StreamState, metadata_of, same_log
from blockhouse_aggregator.protocol.step import step
from blockhouse_aggregator.runtime.arrival import restarted, stop_of, take_over
from blockhouse_aggregator.runtime.blocked import BlockedBlocks
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.in_flight import BlocksInFlight
from blockhouse_aggregator.runtime.pacing import Pace
from blockhouse_aggregator.runtime.ports import Fate
from blockhouse_aggregator.runtime.reporting import StreamReport
from blockhouse_aggregator.runtime.retention import Retention
from blockhouse_aggregator.runtime.surroundings import Surroundings
from blockhouse_aggregator.runtime.translate import scan_report

log = structlog.get_logger(__name__)

DECISION_POLL = 5.0
"""Seconds between looks for an operator's decision about a stopped stream."""
ENTRY_UNITS = 26
"""UTF-16 units a new metadata entry is first expected to take."""


class StreamOwner:
    """Owns one stream in one epoch. All methods run on the event loop."""

    def __init__(self, stream: StreamId, epoch: int, around: Surroundings, on_rebuild: Callable[[str], None]) -> None:
        self.stream = stream
        self.epoch = epoch
        self.around = around
        self.state: StreamState | None = None
        self.stop: takeover.Stop | None = None
        self.report = StreamReport(stream, around.figures, around.catalog)
        self.log_end = 0
        self.sealed_at = 0.0
        """When, on the loop's clock, a round was last sealed."""
        self.pace = Pace()
        self.scanning = False
        """Whether a task gathers messages that no intent names yet."""
        self.closed = asyncio.Event()
        self.wake = asyncio.Event()
        self.entry_units = ENTRY_UNITS
        self.draining = asyncio.Event()
        self.blocks = BlocksInFlight(self)
        self.awaited_revisions: dict[str, int] = {}
        self.retention = Retention(stream)
        self._blocked = BlockedBlocks(self, self.blocks)
        self._on_rebuild = on_rebuild
        self._committing = asyncio.Lock()
        self._start_recorded = False
        self._accepted = False
        self._jobs: set[asyncio.Task[None]] = set()
        self._last_commit = 0.0
        self._window_closed = 0.0
        self._label = str(stream)

    # --- taking over ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the stream over: returns with a state, or closed. Waits while the stream must not be consumed."""
        around = self.around
        while not self.closed.is_set():
            try:
                facts, decision = await take_over(
                    around.outside,
                    around.catalog,
                    self.stream,
                    replica=around.config.replica,
                    epoch=self.epoch,
                    now_ms=around.now_ms(),
                )
                self.log_end = facts.log_end
                self._accepted = restarted(decision)
                self._start_recorded = facts.marker_topic_id == facts.topic_id and not self._accepted
            except Retryable as error:
                log.warning("stream.takeover_waits", stream=self._label, error=str(error))
                await self.pause(max(error.after, 1.0))
                continue
            except BlockhouseError as error:
                decision = stop_of(error)
            if self.closed.is_set():
                return  # given up meanwhile: what it looked like says nothing
            if isinstance(decision, takeover.Start):
                self._begin(decision)
                return
            if self.stop != decision:
                self.report.stopped(self.stop, decision)
                self.stop = decision
            await self.pause(DECISION_POLL)

    def _begin(self, start: takeover.Start) -> None:
        self.state = start.state
        # What was written while nobody read is not to wait for its block's age as well.
        self.pace = Pace(catching_up=self.log_end > start.state.position)
        self.report.started(self.epoch, start.state, self.stop)
        self.stop = None
        self.report.alarm(*start.alarms)
        if start.state.in_flight:
            self.spawn(self.flush())  # the commit that proves the stream is ours, without which nothing is replayed
        self.spawn(self._flush_now_and_then())

    async def pause(self, seconds: float) -> None:
        """Wait, or return at once when the stream is dropped."""
        try:
            await asyncio.wait_for(self.closed.wait(), seconds)
        except TimeoutError:
            return

    # --- events and effects ---------------------------------------------------------------------------------

    async def sealed(self, sealed: Sealed, resumed: frozenset[int]) -> bool:
        """A round was sealed: commit its intents. False when the round was dropped and must be read again."""
        ids = {table.table: await self.around.catalog.id_of(table.table) for table in sealed.tables}
        event = Scanned(scan_report(sealed, ids), resumed)
        async with self._committing:
            if self.state is None or self.closed.is_set() or self._held(sealed):
                return False
            after, effects = step(self.state, event, self.around.now_ms())
            if self._too_large(effects):
                return False
            self.log_end, self.sealed_at = max(sealed.log_end, sealed.stop), loop_time()
            self.report.round(sealed, self.state, after)
            self.blocks.built(t.block for t in sealed.tables if t.block is not None)
            self.state = after
            await self._perform(effects)
        return not self.closed.is_set()

    def _held(self, sealed: Sealed) -> bool:
        """Whether the round holds a block of a table that a rollout holds by now: it is then read again without it, so
        that a table which `/status` shows held, with nothing in flight, stays so."""
        return any(t.block is not None and self.around.catalog.hold_of(t.table) for t in sealed.tables)

    def _too_large(self, effects: tuple[Effect, ...]) -> bool:
        """A round whose metadata would not fit is dropped whole and read again with room for fewer tables."""
        limit = self.around.room.units
        for effect in effects:
            if isinstance(effect, Commit) and (units := len(codec.encode(effect.metadata))) > limit:
                log.warning("stream.round_too_large", stream=self._label, units=units, limit=limit)
                self.entry_units = min(self.entry_units * 2, limit)
                return True
        self.entry_units = max(ENTRY_UNITS, self.entry_units * 7 // 8)
        return False

    async def apply(self, event: Event) -> None:
        """Feed one event to the protocol and perform what follows."""
        if self.state is None or self.closed.is_set():
            return
        self.state, effects = step(self.state, event, self.around.now_ms())
        self.report.blocked(self.state)
        await self._perform(effects)
        self.wake.set()

    async def _perform(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Commit():
                    await self._commit(effect)
                case Insert():
                    self.spawn(self.blocks.store(effect))
                case Rebuild():
                    self._rebuild(effect.reason)
                case Rejoin():
                    self.close("a commit's fate is unknown")
                case Alarm():
                    self.report.alarm(effect)

    async def _commit(self, commit: Commit) -> None:
        text = codec.encode(commit.metadata)
        result = await self.around.outside.group.commit(self.stream, commit.epoch, commit.offset, text)
        self.report.committed(result.fate.value, result.reason, len(text))
        self._last_commit = loop_time()
        seq = commit.metadata.seq
        if result.fate is Fate.COMMITTED:
            await self._record_start()
            await self.apply(CommitSucceeded(seq))
        elif result.fate is Fate.REFUSED:
            if result.reason == "OffsetMetadataTooLarge":
                self.around.room.units = min(self.around.room.units, len(text) * 3 // 4)
                log.error("stream.metadata_refused", stream=self._label, units=len(text), now=self.around.room.units)
            await self.apply(CommitRefused(seq, result.reason))
        else:
            await self.apply(CommitUnknown(seq))

    async def _record_start(self) -> None:
        """Between its first commit and its first insert a stream is marked in ZooKeeper: expired offsets must never
        look like a new stream. (Marked before the commit, a stream that moved in between would look expired.)"""
        markers = self.around.outside.markers
        while not self._start_recorded and not self.closed.is_set():
            assert self.state is not None
            try:
                await markers.mark_started(self.stream, self.state.topic_id)
                if self._accepted:
                    await markers.consume_acceptance(self.stream)
                self._start_recorded = True
            except Retryable as error:
                log.warning("stream.marker_waits", stream=self._label, error=str(error))
                await self.pause(1.0)

    async def _flush_now_and_then(self) -> None:
        """Record acknowledgements of a stream that has gone idle, and close the window now and then."""
        config = self.around.config
        self._window_closed = loop_time()
        while not self.closed.is_set():
            await self.pause(0.5)
            close_window = loop_time() - self._window_closed > config.window_flush
            quiet = loop_time() - self._last_commit > 1.5 * config.blocks.max_age
            if quiet or close_window:
                await self.flush(close_window=close_window)
            if close_window:
                self._window_closed = loop_time()
            await self._blocked.look()
            await self.retention.look(self.around.outside.group, self.state, self.around.now_ms())

    async def flush(self, *, close_window: bool = False) -> None:
        async with self._committing:
            await self.apply(Flush(close_window=close_window))

    def drain(self) -> None:
        """Read nothing more; seal what is gathered, finish what is under way and record it."""
        if not self.draining.is_set():
            self.draining.set()
            self.wake.set()
            self.spawn(self._record_at_once())

    async def _record_at_once(self) -> None:
        while not self.closed.is_set():
            await self.flush()
            await self.pause(0.1)

    @property
    def clean(self) -> bool:
        """Nothing gathered, nothing the broker does not know, and nothing in flight that a task still works on."""
        state = self.state
        if state is None or self.closed.is_set():
            return True
        recorded = same_log(state.recorded, metadata_of(state, 0))
        return recorded and not self.scanning and (self.blocks.task is None or not state.in_flight)

    # --- end ------------------------------------------------------------------------------------------------

    def reassess(self, reason: str) -> None:
        """The log is not what the state says: take the stream over again, from the facts."""
        self.report.alarm(Alarm(reason, "the task cannot read where the stream stands"))
        self._rebuild(reason)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        job = asyncio.ensure_future(work)
        self._jobs.add(job)
        job.add_done_callback(self._finished)

    def _finished(self, job: asyncio.Task[None]) -> None:
        self._jobs.discard(job)
        if not job.cancelled() and (error := job.exception()) is not None:
            log.error("stream.job_failed", stream=self._label, error=repr(error), exc_info=error)
            self._rebuild("InternalError")

    def _rebuild(self, reason: str) -> None:
        if not self.closed.is_set():
            self.close(reason)
            self._on_rebuild(reason)

    def close(self, why: str) -> None:
        """The stream is not ours any more, or this state is not to be trusted: void everything at once."""
        if self.closed.is_set():
            return
        self.report.closed(self.epoch, why, self.stop)
        self.closed.set()
        self.wake.set()
        current = asyncio.current_task()
        for job in tuple(self._jobs):
            if job is not current:
                job.cancel()
