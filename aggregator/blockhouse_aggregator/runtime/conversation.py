"""What the owner of a stream says to the task that works for it during one lease: orders, grants, and when to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from blockhouse.errors import Retryable
from blockhouse.metadata import codec
from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.faults.model import Injection, Point
from blockhouse_aggregator.gate.messages import (
    BlockKey,
    Bye,
    Drop,
    Finish,
    Grant,
    Rebuilt,
    Replay,
    ReplayBlock,
    Result,
    Scan,
    Sealed,
    Stop,
    Trouble,
    Welcome,
)
from blockhouse_aggregator.gate.server import TaskSession
from blockhouse_aggregator.protocol import schedule
from blockhouse_aggregator.protocol.events import Alarm
from blockhouse_aggregator.protocol.state import Stage, StreamState, metadata_of
from blockhouse_aggregator.runtime.deaths import Deaths
from blockhouse_aggregator.runtime.owner import StreamOwner
from blockhouse_aggregator.runtime.pacing import Pace, next_pace
from blockhouse_aggregator.runtime.retention import burial, expiring

log = structlog.get_logger(__name__)

NEAR = 20_000
"""Offsets a table may be behind P and still ride along with the new messages."""
IDLE_PATIENCE = 1.0
CATCH_UP_SECONDS = 2.0
SMALL_WAIT, LARGE_WAIT = 1.0, 8.0
"""Seconds to wait for a block before the next scan leaves its table behind: for a table among many, and for one that is
much of what is read, and would only be read twice."""
GRACE = 10.0
LAST_INSERTS = 10.0
"""Seconds for which a lease that is over waits for blocks that cannot be granted (lock, quorum): until its task has
gone nothing else of the stream is read."""


@dataclass(slots=True)
class _RoundInserts:
    """The tables with a block in the last round, by the seconds they are waited for at most, and since when."""

    waits: dict[str, float] = field(default_factory=dict)
    since: float = 0.0


@dataclass(slots=True)
class Conversation:
    """One lease with one task. `should_end` tells when the lease has lasted long enough."""

    owner: StreamOwner
    session: TaskSession
    should_end: Callable[[], bool]
    deaths: Deaths
    pace: Pace = field(default_factory=Pace)
    _round: int = 0
    _told: int = 0
    _catch_up: bool = False
    _full: bool = False
    _over_since: float = 0.0
    _last: _RoundInserts = field(default_factory=_RoundInserts)
    _answers: asyncio.Queue[Sealed | Rebuilt | Trouble | Bye | None] = field(default_factory=asyncio.Queue)
    _results: dict[BlockKey, asyncio.Future[Result]] = field(default_factory=dict)
    touched: float = 0.0
    """When, on the loop's clock, anything was last said or heard."""

    async def run(self) -> None:
        """Talk until the lease is over, the task is gone or the stream is dropped."""
        config = self.owner.around.config
        self.session.send(
            Welcome(
                proof=self.session.proof,
                blocks=config.blocks,
                quorum=config.quorum,
                database=config.clickhouse.database,
                default_format=config.default_format,
            )
        )
        self._touch()
        self.owner.task = self._insert
        listener = asyncio.ensure_future(self._listen())
        try:
            await self._give_orders()
        finally:
            self.owner.task = None
            listener.cancel()
            self._fail_results("the task is gone")
            self.session.close()

    def _touch(self) -> None:
        self.touched = asyncio.get_running_loop().time()

    async def _listen(self) -> None:
        try:
            while (message := await self.session.receive()) is not None:
                self._touch()
                if isinstance(message, Result):
                    waiting = self._results.pop(message.block, None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(message)
                elif isinstance(message, Sealed | Rebuilt | Trouble | Bye):
                    self._answers.put_nowait(message)
        finally:
            self._answers.put_nowait(None)
            self._fail_results("the connection to the task broke")
            self.owner.wake.set()

    def _fail_results(self, why: str) -> None:
        for future in self._results.values():
            if not future.done():
                future.set_exception(Retryable(f"{why}: the fate of the insert is unknown"))
        self._results.clear()

    async def _insert(self, grant: Grant) -> Result:
        """Grant one insert and wait for what became of it. Raises Retryable when that cannot be known."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._results[grant.block] = future
        self.session.send(grant)
        patience = max(0.0, (grant.deadline_ms - self.owner.around.now_ms()) / 1000) + GRACE
        try:
            return await asyncio.wait_for(future, patience)
        except TimeoutError:
            raise Retryable(f"no answer about {grant.block.table} within {patience:.0f} s") from None
        finally:
            self._results.pop(grant.block, None)

    # --- orders ---------------------------------------------------------------------------------------------

    async def _give_orders(self) -> None:
        while True:
            order = self.deaths.given(await self._next_order())
            self.session.send(order)
            self._touch()
            answer = await self._answer(order)
            self.deaths.heard(order, answer, dropped=self.owner.closed.is_set())
            match answer:
                case None | Bye():
                    return
                case Trouble():
                    await self._trouble(order, answer)
                case Sealed() if isinstance(order, Scan):
                    await self._sealed(order, answer)
                case Rebuilt():
                    await self._rebuilt(answer)
                case _:
                    log.error("conversation.unexpected", stream=str(self.owner.stream), answer=answer.type)
                    return

    async def _answer(self, order: Scan | Replay | Stop) -> Sealed | Rebuilt | Trouble | Bye | None:
        """The answer to an order; once the stream is dropped, only the task's farewell."""
        answering = asyncio.ensure_future(self._answers.get())
        closed = asyncio.ensure_future(self.owner.closed.wait())
        draining = asyncio.ensure_future(self.owner.draining.wait())
        try:
            if not isinstance(order, Stop):
                waiting = {answering, closed} | ({draining} if isinstance(order, Scan) else set())
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if draining.done() and not closed.done() and not answering.done():
                    self.session.send(Finish())  # a block that is still being filled must not use up the time
                    await asyncio.wait({answering, closed}, return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    self.session.send(Stop())
            answer = await answering
        finally:
            for future in (answering, closed, draining):
                future.cancel()
        return await self._farewell(answer) if self.owner.closed.is_set() else answer

    async def _farewell(self, answer: Sealed | Rebuilt | Trouble | Bye | None) -> Bye | None:
        """The stream is dropped: hear the task until its last insert has ended, so that a lock outlives its insert."""
        while answer is not None and not isinstance(answer, Bye):
            self.session.send(Stop())
            answer = await self._answers.get()
        return answer

    async def _next_order(self) -> Scan | Replay | Stop:
        """Wait until there is something to do."""
        while True:
            self.owner.wake.clear()
            state = self.owner.state
            if state is None or self.owner.closed.is_set() or not self._answers.empty():
                return Stop()
            ending = self.owner.draining.is_set() or self.should_end()
            if ending and not (self._inserting(state) and self._patient()):
                return Stop()
            if not ending and (order := self._ready_order(state)) is not None:
                return order
            await self._sleep()

    def _ready_order(self, state: StreamState) -> Scan | Replay | None:
        now = asyncio.get_running_loop().time()
        retries = self.owner.retries
        ready = frozenset(t.table for t in state.in_flight if t.table not in retries or retries[t.table].at <= now)
        replay = schedule.replays(state, ready)
        if replay is not None:
            return self._replay(replay)
        if state.committing is not None or self._waiting_for_inserts(state, now):
            return None
        return self._burial(state) or self._scan(state, self._entries(state))

    def _burial(self, state: StreamState) -> Scan | None:
        """Messages of tables that cannot be loaded, up to where retention is about to take them: dead letters."""
        catalog, retention = self.owner.around.catalog, self.owner.retention
        due = expiring(state, retention.below, catalog.hopeless())
        if not due:
            return None
        self.owner.report.alarm(*retention.untold(due))
        self._round += 1
        limits = self.owner.around.config.blocks
        return burial(state, retention.below, due, catalog.name, self._round, limits, IDLE_PATIENCE, CATCH_UP_SECONDS)

    async def _sleep(self) -> None:
        try:
            async with asyncio.timeout(0.25):
                await self.owner.wake.wait()
        except TimeoutError:
            return

    def _patient(self) -> bool:
        """Whether a lease that is over should last: while inserts are granted, and a little for those that wait."""
        now = asyncio.get_running_loop().time()
        self._over_since = self._over_since or now
        return bool(self._results) or now - self._over_since < LAST_INSERTS

    @staticmethod
    def _inserting(state: StreamState) -> bool:
        return any(t.block is not None and t.block.stage is Stage.INSERTING for t in state.tables)

    def _waiting_for_inserts(self, state: StreamState, now: float) -> bool:
        waited = now - self._last.since
        fresh = [self.owner.around.catalog.name(t.table) for t in state.in_flight if t.block and t.block.fresh]
        return any(waited < self._last.waits.get(name, 0.0) for name in fresh)

    def _entries(self, state: StreamState) -> int:
        """How many more tables the metadata has room for."""
        limit = self.owner.around.room.units
        used = len(codec.encode(metadata_of(state, self.owner.around.now_ms())))
        return max(0, (limit - used) // self.owner.entry_units)

    @staticmethod
    def _without_room(state: StreamState, held: frozenset[int], entries: int) -> frozenset[int]:
        """Lagging tables that wait for others: a block in flight takes more room than a cursor. The oldest goes on."""
        behind = sorted(schedule.lagging(state, held), key=lambda table: (table.cursor or 0, table.table))
        return frozenset(table.table for table in behind[max(1, entries) :])

    def _scan(self, state: StreamState, entries: int) -> Scan:
        around = self.owner.around
        dead = around.catalog.dead_lettered(
            around.config.unknown_table == "deadLetter", around.config.max_unknown_tables
        )
        held = (around.catalog.held() | self._waiting_for_revisions()) - dead
        held |= self._without_room(state, held, entries)
        self._catch_up = not self._catch_up and schedule.has_far(state, held=held, near=NEAR)
        request = schedule.scan(state, held=held, near=NEAR, catch_up=self._catch_up)
        blocks, name = around.config.blocks, around.catalog.name
        age = max(blocks.max_age, self.pace.max_age(), *(t.max_age for t in blocks.tables.values()), 0)
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
            catalog=self._news(),
            max_bytes=self.pace.max_bytes(blocks, around.streams()),
            max_rows=self.pace.max_rows(blocks),
            max_age=self.pace.max_age(),
            seal_at_end=self.pace.catching_up,
            entries=max(0, entries - len(request.resume) - 1),  # one is kept for a lagging table to go on
            leader_epoch=state.leader_epoch,
            patience=IDLE_PATIENCE,
            max_seconds=CATCH_UP_SECONDS if request.stop is not None else age + IDLE_PATIENCE,
            faults=self._faults(Point.DURING_FETCH),
        )

    def _waiting_for_revisions(self) -> frozenset[int]:
        """Tables whose next message has a schema revision nobody knows yet: reading it again before that is in vain."""
        catalog, waiting = self.owner.around.catalog, self.owner.awaited_revisions
        for table, revision in tuple(waiting.items()):
            known = catalog.known(table)
            if known is not None and known.history.revision(revision) is not None:
                del waiting[table]
        state, below = self.owner.state, self.owner.retention.below
        due = {t.table for t in state.tables if t.cursor is not None and t.cursor < below} if state else set()
        ids = frozenset(known.history.id for table in waiting if (known := catalog.known(table)) is not None)
        return ids - due

    def _replay(self, request: schedule.ReplayRequest) -> Replay:
        self._round += 1
        name = self.owner.around.catalog.name
        blocks = tuple(
            ReplayBlock(table=name(table), begin=i.begin, end=i.end, revision=i.encoded_with, foreign=i.foreign)
            for table, i in request.blocks
        )
        replayed = self.owner.around.catalog.replayable(block.table for block in blocks)
        news = {history.name: history for history in (*self._news(), *replayed)}
        return Replay(
            round=self._round,
            blocks=blocks,
            catalog=tuple(news.values()),
            faults=self._faults(Point.DURING_REPLAY),
        )

    def _faults(self, point: Point) -> tuple[Injection, ...]:
        injection = self.owner.around.faults.take(point, str(self.owner.stream))
        return (injection,) if injection is not None else ()

    def _news(self) -> tuple[TableHistory, ...]:
        catalog = self.owner.around.catalog
        news = catalog.changed_since(self._told)
        self._told = catalog.version
        return news

    # --- answers --------------------------------------------------------------------------------------------

    async def _sealed(self, order: Scan, sealed: Sealed) -> None:
        catalog = self.owner.around.catalog
        resumed = frozenset([await catalog.id_of(table) for table in order.resume])
        blocks = [t.block for t in sealed.tables if t.block is not None]
        if not await self.owner.sealed(sealed, resumed):
            for block in blocks:
                self.session.send(Drop(block=BlockKey(table=block.table, begin=block.begin, end=block.end)))
            await self._sleep()
            return
        self.owner.awaited_revisions |= {t.table: t.waits_for for t in sealed.tables if t.waits_for is not None}
        now = asyncio.get_running_loop().time()
        # A lease's first round follows no other: it cannot be late.
        allowed = 2 * self.owner.around.config.blocks.max_age + sealed.elapsed
        late = self._last.since > 0 and now - self._last.since > allowed
        taken = sum(block.messages for block in blocks)
        if order.stop is None:
            behind = max(0, sealed.log_end - sealed.stop)
            blocks_config = self.owner.around.config.blocks
            self.pace = next_pace(self.pace, blocks_config, behind=behind, taken=taken, late=late and bool(taken))
        scanned = sum(t.seen for t in sealed.tables)
        waits = {b.table: LARGE_WAIT if b.messages * 4 > scanned else SMALL_WAIT for b in blocks}
        self._last = _RoundInserts(waits, now)
        if order.stop is None and sealed.stop == order.position and sealed.log_end > sealed.stop:
            await self._no_room()

    async def _no_room(self) -> None:
        """The next message is of a table for which the metadata has no room: wait until others have left it."""
        state = self.owner.state
        if state is not None and not state.in_flight and not self._full:
            self._full = True
            text = f"the metadata holds {len(state.tables)} lagging tables and has no room for another"
            self.owner.report.alarm(Alarm("MetadataFull", text))
        await self._sleep()

    async def _rebuilt(self, rebuilt: Rebuilt) -> None:
        for block in rebuilt.blocks:
            await self.owner.rebuilt(block)
        for key in rebuilt.missing:
            await self._missing(key)

    async def _missing(self, key: BlockKey) -> None:
        state = self.owner.state
        table_id = await self.owner.around.catalog.id_of(key.table)
        if state is None or (block := state.table(table_id).block) is None:
            return
        if (block.intent.begin, block.intent.end) == (key.begin, key.end):
            self.owner.lost(table_id, block.intent)

    async def _trouble(self, order: Scan | Replay | Stop, trouble: Trouble) -> None:
        """The task cannot read: wait and ask again, or find out anew where the stream stands."""
        log.warning("task.trouble", stream=str(self.owner.stream), reason=trouble.reason, message=trouble.message[:300])
        if trouble.retryable:
            await asyncio.sleep(1.0)
        elif isinstance(order, Replay) and trouble.reason == "BelowLogStart":
            for block in order.blocks:
                await self._missing(BlockKey(table=block.table, begin=block.begin, end=block.end))
        else:
            await asyncio.sleep(1.0)
            self.owner.reassess(trouble.reason)
