"""One stream while we own it: keeps the protocol state and carries out its effects.

The rules are in `protocol/`; this module only performs them in order: commit, then grant, then acknowledge. When the
stream is revoked, everything here is void at once (I6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, assert_never

import structlog

from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.metadata.model import InFlight, Metadata
from blockhouse.streams import StreamId
from blockhouse_aggregator.gate.messages import BlockKey, BuiltBlock, Sealed
from blockhouse_aggregator.protocol import commits, takeover
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
    Rebuilt,
    Rejoin,
    Scanned,
)
from blockhouse_aggregator.protocol.state import Stage, StreamState, metadata_of, same_log
from blockhouse_aggregator.protocol.step import step
from blockhouse_aggregator.runtime.clock import loop_time, pause
from blockhouse_aggregator.runtime.ports import Lock
from blockhouse_aggregator.runtime.stream.awaited_revisions import AwaitedRevisions
from blockhouse_aggregator.runtime.stream.context import StreamContext
from blockhouse_aggregator.runtime.stream.current_task import CurrentTask
from blockhouse_aggregator.runtime.stream.defects import INTERNAL_ERROR, INVARIANT_VIOLATED
from blockhouse_aggregator.runtime.stream.in_flight import BlocksInFlight
from blockhouse_aggregator.runtime.stream.invariant_guard import InvariantGuard
from blockhouse_aggregator.runtime.stream.metadata_writer import MetadataWriter, is_smallest
from blockhouse_aggregator.runtime.stream.pacing import Pace
from blockhouse_aggregator.runtime.stream.proof import InsertProof
from blockhouse_aggregator.runtime.stream.reporting import StreamReport
from blockhouse_aggregator.runtime.stream.resumption import acceptance_of, sole_topic, stop_of, take_over
from blockhouse_aggregator.runtime.stream.retention import Retention
from blockhouse_aggregator.runtime.stream.stalled_blocks import StalledBlocks
from blockhouse_aggregator.runtime.stream.topic_watch import TopicWatch
from blockhouse_aggregator.runtime.stream.translate import scan_report, sealed_block

log = structlog.get_logger(__name__)

DECISION_POLL = 5.0
"""Seconds between reads of an operator's decision about a stopped stream."""


class StreamOwner:
    """Owns one stream in one epoch. All methods run on the event loop."""

    def __init__(self, stream: StreamId, epoch: int, context: StreamContext, on_rebuild: Callable[[str], None]) -> None:
        self.stream = stream
        self.epoch = epoch
        self.context = context
        self.state: StreamState | None = None
        self.stop: takeover.Stop | None = None
        self.report = StreamReport(stream, context.figures, context.catalog, context.history, context.now_ms)
        self.log_end = 0
        self.committed: int | None = None
        """The offset committed when the stream was assigned: everything below it was stored. None: not known."""
        self.takeover_waits = ""
        """What the takeover waits for; empty when it does not."""
        self.sealed_at = 0.0
        """When, on the loop's clock, a round was last sealed."""
        self.pace = Pace()
        self.closed = asyncio.Event()
        self.wake = asyncio.Event()
        self.draining = asyncio.Event()
        self._name = f"{context.config.replica}/{epoch}/{context.random.getrandbits(64):016x}"
        self._proof = InsertProof(stream, self._name, context.ports.markers)
        self.task = CurrentTask(str(stream), context.faults, self._prove)
        self.blocks = BlocksInFlight(stream, context, self.report, self.task, self.closed)
        self.awaited_revisions = AwaitedRevisions(context.catalog)
        self.retention = Retention(stream)
        self.writer = MetadataWriter(stream, self._name, context, self.report, self.closed)
        self._blocked = StalledBlocks(self, self.blocks)
        self._scanning = False
        """Whether a task gathers messages that no intent names yet."""
        self._on_rebuild = on_rebuild
        self._guard = InvariantGuard()
        self._began_at = 0
        """The position at which the stream was taken over."""
        self._topic = TopicWatch(stream, self.closed)
        self._committing = asyncio.Lock()
        self._jobs: set[asyncio.Task[None]] = set()
        self._window_closed = 0.0
        self._label = str(stream)

    # --- taking over ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take the stream over: returns with a state, or closed. Waits while the stream must not be consumed."""
        context = self.context
        while not self.closed.is_set():
            try:
                facts, decision = await take_over(
                    context.ports,
                    context.catalog,
                    self.stream,
                    replica=context.config.replica,
                    owner=self._name,
                    epoch=self.epoch,
                    now_ms=context.now_ms(),
                )
                self.log_end, self.committed = facts.log_end, facts.offset
                self.writer.started(facts, decision)
                self.blocks.of_sole_topic(sole_topic(facts, decision))
            except Retryable as error:
                log.warning("stream.takeover_waits", stream=self._label, error=str(error))
                self.takeover_waits = str(error)
                await pause(self.closed, max(error.after, 1.0))
                continue
            except BlockhouseError as error:
                decision = stop_of(error)
            if self.closed.is_set():
                return  # revoked meanwhile: what was decided is void
            if isinstance(decision, takeover.Start):
                stop = self.context.defects.stop(self.stream, _committed_position(decision.state))
                if stop is None:
                    self._begin(decision, facts.metadata)
                    return
                decision = stop
            if self.stop != decision:
                self.report.stopped(self.stop, decision)
                self.stop = decision
            await pause(self.closed, DECISION_POLL)

    def _begin(self, start: takeover.Start, found: Metadata | None) -> None:
        self.state = start.state
        self.takeover_waits = ""
        self._began_at = start.state.position
        # What was written while the stream had no reader must not wait for its block's age as well.
        self.pace = Pace(catching_up=self.log_end > start.state.position)
        self.report.started(self.epoch, start.state, self.stop, found, acceptance_of(start))
        self.stop = None
        self.report.alarm(*start.alarms)
        if start.state.in_flight:
            self.spawn(self.flush())  # the commit that proves the stream is ours, without which nothing is replayed
        self.spawn(self._flush_now_and_then())

    # --- events and effects ---------------------------------------------------------------------------------

    async def sealed(self, sealed: Sealed, resumed: frozenset[int]) -> bool:
        """A round was sealed: commit its intents. False when the round was dropped and must be read again."""
        ids = {table.table: await self.context.catalog.id_of(table.table) for table in sealed.tables}
        event = Scanned(scan_report(sealed, ids), resumed)
        async with self._committing:
            if self.state is not None and await self._log_is_another(self.state, sealed):
                return False
            if self.state is None or self.closed.is_set() or self._held(sealed):
                return False
            after, effects = step(self.state, event, self.context.now_ms())
            if self._violates(event, after, effects) or not self.writer.fits(
                effects, smallest=is_smallest(self.state, after)
            ):
                return False
            self.log_end, self.sealed_at = max(sealed.log_end, sealed.stop), loop_time()
            self.report.round(self.state, after, sealed.letters)
            self.blocks.built(sealed.blocks)
            self.state = after
            await self._perform(effects)
        return not self.closed.is_set()

    async def _log_is_another(self, state: StreamState, sealed: Sealed) -> bool:
        """Whether what was read may have taken the place of what the stream has read before: it is then taken over
        again, which finds out."""
        problem = await self._topic.cut(self.context.ports.group, state, sealed)
        if problem:
            self._rebuild(problem)
        return bool(problem)

    def _held(self, sealed: Sealed) -> bool:
        """Whether the round has a block of a table that is paused by now: it is then read again without that table."""
        return any(t.block is not None and self.context.catalog.pause_of(t.table) for t in sealed.tables)

    async def apply(self, event: Event) -> None:
        """Feed one event to the protocol and perform what follows."""
        if self.state is None or self.closed.is_set():
            return
        after, effects = step(self.state, event, self.context.now_ms())
        if self._violates(event, after, effects):
            return
        self.state = after
        self.report.blocked(self.state)
        await self._perform(effects)
        self.wake.set()

    def _violates(self, event: Event, after: StreamState, effects: tuple[Effect, ...]) -> bool:
        """Whether the effects would break an invariant: then none of them is performed, and the stream is taken over
        again from what is committed."""
        found = self._guard.check(event, after, effects)
        if found:
            position = self._began_at if after.recorded is None else after.recorded.position
            text = self.context.defects.violated(self.stream, position, found)
            self.report.alarm(Alarm(INVARIANT_VIOLATED, text))
            self._rebuild(INVARIANT_VIOLATED)
        return bool(found)

    async def _perform(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Commit():
                    await self._commit(effect)
                case Insert():
                    self.spawn(self._store(effect))
                case Rebuild():
                    self._rebuild(effect.reason)
                case Rejoin():
                    self.close("a commit's fate is unknown")
                case Alarm():
                    self.report.alarm(effect)
                case _:
                    assert_never(effect)

    async def _store(self, insert: Insert) -> None:
        assert self.state is not None
        settled = await self.blocks.store(insert, self.state.topic_id)
        if settled is not None:
            await self.apply(settled)

    async def rebuilt(self, block: BuiltBlock) -> None:
        """A block came back from the log; if it is not the recorded one, provenance may show that it is stored.

        Caller: the conversation with the task that holds its bytes.
        """
        table_id = await self.context.catalog.id_of(block.table)
        self.report.replayed()
        self.blocks.built([block])
        await self.apply(Rebuilt(table_id, sealed_block(block)))
        assert self.state is not None
        stalled = self.state.table(table_id).block
        if stalled is not None and stalled.stage is Stage.BLOCKED:
            self.spawn(self._settle_without_bytes(table_id, stalled.intent, stalled.reason))

    def lost(self, key: BlockKey) -> None:
        """The log no longer holds the whole block: it can only be acknowledged, never rebuilt.

        Caller: the conversation with the task that could not rebuild it.
        """
        known = self.context.catalog.known(key.table)
        block = self.state.table(known.history.id).block if self.state is not None and known is not None else None
        if known is not None and block is not None and (block.intent.begin, block.intent.end) == (key.begin, key.end):
            self.blocks.never_replay(known.history.id)
            self.spawn(self._settle_without_bytes(known.history.id, block.intent, "ReplayRangeExpired"))

    async def _settle_without_bytes(self, table_id: int, intent: InFlight, reason: str) -> None:
        def current() -> bool:
            block = self.state.table(table_id).block if self.state is not None else None
            return block is not None and block.intent == intent

        assert self.state is not None
        topic_id = self.state.topic_id
        settled = await self.blocks.settle_without_bytes(table_id, intent, topic_id, reason, current=current)
        if settled is not None:
            await self.apply(settled)

    async def _prove(self, lock: Lock) -> None:
        """Raises Retryable unless an insert under the lock may begin now."""
        state = self.state if not self.closed.is_set() else None
        await self._proof.give(state, lock, await self.context.catalog.identity())

    async def _commit(self, commit: Commit) -> None:
        problem = await self._topic.problem(self.context.ports.group, commit.metadata.topic_id)
        if problem:  # what was read last may be another topic's: nothing of it may be recorded
            self._rebuild(problem)
            return
        seq = commit.metadata.seq
        outcome = await self.writer.write(commit)
        match outcome:
            case commits.Applied():
                await self.apply(CommitSucceeded(seq))
            case commits.Refused(reason=reason):
                await self.apply(CommitRefused(seq, reason))
            case commits.Unknown():
                await self.apply(CommitUnknown(seq))
            case _:
                assert_never(outcome)

    async def _flush_now_and_then(self) -> None:
        """Record acknowledgements of a stream that has gone idle, and close the window now and then."""
        config = self.context.config
        self._window_closed = loop_time()
        while not self.closed.is_set():
            await pause(self.closed, 0.5)
            close_window = loop_time() - self._window_closed > config.window_flush
            quiet = self.writer.idle_for > 1.5 * config.blocks.max_age
            if quiet or close_window:
                await self.flush(close_window=close_window)
            if close_window:
                self._window_closed = loop_time()
            await self._check_topic()
            await self._blocked.look()
            await self.retention.look(self.context.ports.group, self.state, self.context.now_ms())

    async def _check_topic(self) -> None:
        """A stream that commits nothing has to notice too: of a re-created topic a reader reads nothing for a while."""
        problem = await self._topic.changed(self.context.ports.group, self.state)
        if problem:
            self._rebuild(problem)

    async def flush(self, *, close_window: bool = False) -> None:
        """Commit what is not committed yet; with `close_window` also when nothing changed. Raises as `apply`."""
        async with self._committing:
            await self.apply(Flush(close_window=close_window))

    def gathers(self, scanning: bool) -> None:
        """Whether a task gathers messages that no intent names yet. Caller: the conversation with the task."""
        self._scanning = scanning

    def keep_pace(self, pace: Pace) -> None:
        """How large the next round's blocks may be. Caller: `NextOrder`, after a round."""
        self.pace = pace

    def drain(self) -> None:
        """Read nothing more; seal what is gathered, finish what is under way and record it."""
        if not self.draining.is_set():
            self.draining.set()
            self.wake.set()
            self.spawn(self._record_at_once())

    async def _record_at_once(self) -> None:
        while not self.closed.is_set():
            await self.flush()
            await pause(self.closed, 0.1)

    @property
    def clean(self) -> bool:
        """Nothing gathered, nothing the broker does not know, and nothing in flight that a task still works on."""
        state = self.state
        if state is None or self.closed.is_set():
            return True
        recorded = same_log(state.recorded, metadata_of(state, 0))
        return recorded and not self._scanning and not (self.task.present and state.in_flight)

    # --- end ------------------------------------------------------------------------------------------------

    def reassess(self, reason: str, cause: str) -> None:
        """The log is not what the state expects: take the stream over again, from the facts."""
        self.report.alarm(Alarm(reason, f"the task cannot read where the stream stands: {cause}"))
        self._rebuild(reason)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` until it ends or the stream is dropped; an error of it rebuilds the stream."""
        job = asyncio.ensure_future(work)
        self._jobs.add(job)
        job.add_done_callback(self._finished)

    def _finished(self, job: asyncio.Task[None]) -> None:
        self._jobs.discard(job)
        if not job.cancelled() and (error := job.exception()) is not None:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """Work for the stream raised: take it over again. An error that is none of ours is a defect of this process.

        Caller: who started the work: this owner (its jobs), `OwnedStreams` (start, leases), the conversation (proofs).
        """
        if isinstance(error, BlockhouseError):
            log.warning("stream.job_failed", stream=self._label, reason=error.reason, error=str(error))
            self._rebuild(error.reason or "Failed")
            return
        log.error("internal_error", stream=self._label, error=repr(error), exc_info=error)
        self.report.alarm(Alarm(INTERNAL_ERROR, f"{error!r}: see the log line internal_error of this time"))
        self.context.defects.internal_error()
        self._rebuild(INTERNAL_ERROR)

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


def _committed_position(state: StreamState) -> int:
    return state.position if state.recorded is None else state.recorded.position
