"""Which order the task of a stream gets next, by the stream's state and what the last rounds were like. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.faults.model import Injection, Point
from blockhouse_aggregator.gate.messages import BuiltBlock, Replay, ReplayBlock, Scan, Sealed
from blockhouse_aggregator.protocol import schedule
from blockhouse_aggregator.protocol.state import Stage, StreamState, TableState, metadata_of
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.stream.owner import StreamOwner
from blockhouse_aggregator.runtime.stream.pacing import next_pace
from blockhouse_aggregator.runtime.stream.retention import burial, expiring
from blockhouse_aggregator.runtime.stream.round_wait import RoundWait

NEAR = 20_000
"""Offsets a table may be behind P and still ride along with the new messages."""
IDLE_PATIENCE = 1.0
CATCH_UP_SECONDS = 2.0


@dataclass(slots=True)
class NextOrder:
    """The orders of one lease, one after another."""

    owner: StreamOwner
    _round: int = 0
    _sent_version: int = 0
    _catch_up: bool = False
    _sealed_at: float = 0.0
    _waiting: RoundWait = field(default_factory=lambda: RoundWait({}, since=0.0))

    def next(self, state: StreamState) -> Scan | Replay | None:
        """None when there is nothing to do yet."""
        now = loop_time()
        replay = schedule.replays(state, frozenset(t.table for t in state.in_flight if self._can_replay(t, now)))
        if replay is not None:
            return self._replay(replay)
        if state.committing is not None or self._waiting_for_inserts(state, now):
            return None
        return self._burial(state) or self._scan(state, self._entries(state))

    def _can_replay(self, entry: TableState, now: float) -> bool:
        if entry.block is None or not self.owner.blocks.may_replay(entry.table, now):
            return False
        return self.owner.context.catalog.can_rebuild(entry.table, entry.block.intent.encoded_with)

    def sealed(self, order: Scan, sealed: Sealed) -> None:
        """The order's round is committed: how large the next one's blocks may be, and what it waits for."""
        now = loop_time()
        if order.stop is None:
            limits = self.owner.context.config.blocks
            behind = max(0, sealed.log_end - sealed.stop)
            taken = sum(t.block.messages for t in sealed.tables if t.block is not None)
            waited = max(0.0, now - self._sealed_at - sealed.elapsed) if self._sealed_at > 0 else None
            pace = next_pace(self.owner.pace, limits, behind=behind, taken=taken, waited=waited)
            self.owner.keep_pace(pace)
        self._sealed_at = now
        scanned = max(1, sum(t.seen for t in sealed.tables))
        self._waiting = RoundWait({t.table: t.seen / scanned for t in sealed.tables if t.block is not None}, since=now)

    def rebuilt(self, blocks: Sequence[BuiltBlock]) -> None:
        """What is read before these are stored leaves their tables out, and takes as long as a round."""
        self._waiting = RoundWait({block.table: 0.0 for block in blocks}, since=loop_time())

    def _waiting_for_inserts(self, state: StreamState, now: float) -> bool:
        name = self.owner.context.catalog.name
        going = [t.table for t in state.in_flight if t.block and (t.block.fresh or t.block.stage is Stage.INSERTING)]
        return self._waiting.continues([name(table) for table in going], now)

    def _burial(self, state: StreamState) -> Scan | None:
        """Messages of tables that cannot be loaded, up to where retention is about to take them: dead letters."""
        catalog, retention = self.owner.context.catalog, self.owner.retention
        due = expiring(state, retention.below, catalog.hopeless())
        if not due:
            return None
        self.owner.report.alarm(*retention.unreported(due))
        self._round += 1
        limits = self.owner.context.config.blocks
        return burial(state, retention.below, due, catalog.name, self._round, limits, IDLE_PATIENCE, CATCH_UP_SECONDS)

    def _entries(self, state: StreamState) -> int:
        """How many more tables the metadata has room for."""
        return self.owner.writer.room(metadata_of(state, self.owner.context.now_ms()))

    @staticmethod
    def _without_room(state: StreamState, skipped: frozenset[int], entries: int) -> frozenset[int]:
        """Lagging tables that wait for others: a block in flight takes more room than a cursor; oldest first."""
        behind = sorted(schedule.lagging(state, skipped), key=lambda table: (table.cursor or 0, table.table))
        return frozenset(table.table for table in behind[max(1, entries) :])

    def _scan(self, state: StreamState, entries: int) -> Scan:
        context = self.owner.context
        dead = context.catalog.dead_lettered(
            context.config.unknown_table == "deadLetter", context.config.max_unknown_tables
        )
        skipped = (context.catalog.unavailable() | self._waiting_for_revisions()) - dead
        skipped |= self._without_room(state, skipped, entries)
        self._catch_up = not self._catch_up and schedule.has_far(state, skipped=skipped, near=NEAR)
        request = schedule.scan(state, skipped=skipped, near=NEAR, catch_up=self._catch_up)
        blocks, name = context.config.blocks, context.catalog.name
        pace = self.owner.pace
        age = max(blocks.max_age, pace.max_age(blocks), *(t.max_age for t in blocks.tables.values()), 0)
        # After a change of lease what is there has waited already, and the new task cannot know for how long.
        overdue = self.owner.sealed_at > 0 and loop_time() - self.owner.sealed_at > age
        self._round += 1
        return Scan(
            round=self._round,
            start=request.start,
            position=request.position,
            stop=request.stop,
            resume={name(table): cursor for table, cursor in request.resume},
            exclude=tuple(name(table) for table in request.exclude),
            dead_tables={name(table): "UnknownTable" for table in dead},
            expiring=self.owner.retention.below,
            catalog=self._changes(),
            max_bytes=pace.max_bytes(blocks, context.streams()),
            max_rows=pace.max_rows(blocks),
            max_age=pace.max_age(blocks),
            seal_at_end=pace.catching_up or overdue,
            entries=max(0, entries - len(request.resume) - 1),  # one is kept for a lagging table to continue
            leader_epoch=state.leader_epoch,
            topic_id=state.topic_id,
            patience=IDLE_PATIENCE,
            max_seconds=CATCH_UP_SECONDS if request.stop is not None else age + IDLE_PATIENCE,
            faults=self._faults(Point.DURING_FETCH),
        )

    def _waiting_for_revisions(self) -> frozenset[int]:
        """Tables that wait for a schema revision, but for those whose messages are about to expire."""
        state, below = self.owner.state, self.owner.retention.below
        due = {t.table for t in state.tables if t.cursor is not None and t.cursor < below} if state else set()
        return self.owner.awaited_revisions.tables() - due

    def _replay(self, request: schedule.ReplayRequest) -> Replay:
        self._round += 1
        state = self.owner.state
        name = self.owner.context.catalog.name
        blocks = tuple(
            ReplayBlock(table=name(table), begin=i.begin, end=i.end, revision=i.encoded_with, foreign=i.foreign)
            for table, i in request.blocks
        )
        # Changes of paused tables are not sent, yet what is in flight of them has to be stored.
        known = [k for block in blocks if (k := self.owner.context.catalog.known(block.table)) is not None]
        changes = {history.name: history for history in (*self._changes(), *(k.history for k in known))}
        return Replay(
            round=self._round,
            blocks=blocks,
            catalog=tuple(changes.values()),
            topic_id=state.topic_id if state is not None else "",
            faults=self._faults(Point.DURING_REPLAY),
        )

    def _faults(self, point: Point) -> tuple[Injection, ...]:
        injection = self.owner.context.faults.take(point, str(self.owner.stream))
        return (injection,) if injection is not None else ()

    def _changes(self) -> tuple[TableHistory, ...]:
        catalog = self.owner.context.catalog
        changes = catalog.changed_since(self._sent_version)
        self._sent_version = catalog.version
        return changes
