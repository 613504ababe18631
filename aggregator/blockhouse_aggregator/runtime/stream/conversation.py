"""The conversation of a stream's owner with the task that works for it during one task lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from blockhouse.errors import BlockhouseError, Overdue, Retryable
from blockhouse_aggregator.gate.messages import (
    BlockKey,
    Bye,
    Drop,
    Finish,
    Go,
    Grant,
    Ready,
    Rebuilt,
    Replay,
    Result,
    Scan,
    Sealed,
    Stop,
    Trouble,
    Welcome,
)
from blockhouse_aggregator.gate.server import StreamSession
from blockhouse_aggregator.protocol.events import Alarm
from blockhouse_aggregator.protocol.state import Stage, StreamState
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.stream.current_task import Prove
from blockhouse_aggregator.runtime.stream.next_order import NextOrder
from blockhouse_aggregator.runtime.stream.owner import StreamOwner
from blockhouse_aggregator.runtime.stream.task_troubles import TaskTroubles, reason_of
from blockhouse_aggregator.runtime.stream.worker_crashes import WorkerCrashes

log = structlog.get_logger(__name__)

GRACE = 10.0
LAST_INSERTS = 10.0
"""Seconds for which a lease that is over waits for blocks that cannot be granted (lock, quorum): until its task has
gone nothing else of the stream is read."""


@dataclass(slots=True)
class Conversation:
    """One lease with one task. `should_end` is asked whether the lease has lasted long enough."""

    owner: StreamOwner
    session: StreamSession
    should_end: Callable[[], bool]
    crashes: WorkerCrashes
    troubles: TaskTroubles
    _full: bool = False
    _over_since: float = 0.0
    _answers: asyncio.Queue[Sealed | Rebuilt | Trouble | Bye | None] = field(default_factory=asyncio.Queue)
    _results: dict[BlockKey, asyncio.Future[Result]] = field(default_factory=dict)
    _proofs: dict[BlockKey, Prove] = field(default_factory=dict)
    _proving: set[asyncio.Task[None]] = field(default_factory=set)
    _orders: NextOrder = field(init=False)
    touched: float = 0.0
    """When, on the loop's clock, a message was last sent or received."""

    def __post_init__(self) -> None:
        self._orders = NextOrder(self.owner)

    async def run(self) -> None:
        """Converse until the lease is over, the task is gone or the stream is revoked."""
        config = self.owner.context.config
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
        self.owner.task.attach(self._insert)
        listener = asyncio.ensure_future(self._listen())
        try:
            await self._give_orders()
            if listener.done():
                listener.result()  # what it raised is a defect of ours, not the silence of a task
        finally:
            self.owner.task.detach()
            self.owner.gathers(False)
            listener.cancel()
            self._fail_results("the task is gone")
            self.session.close()

    def _touch(self) -> None:
        self.touched = loop_time()
        self.owner.task.hear()

    async def _listen(self) -> None:
        try:
            while (message := await self.session.receive()) is not None:
                self._touch()
                if isinstance(message, Result):
                    waiting = self._results.pop(message.block, None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(message)
                elif isinstance(message, Ready):
                    self._may_begin(message)
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

    def _may_begin(self, ready: Ready) -> None:
        """Answer in a task of its own: the proof takes a round trip, and others must be heard meanwhile."""
        answering = asyncio.ensure_future(self._prove(ready.block))
        self._proving.add(answering)
        answering.add_done_callback(self._proven)

    def _proven(self, answering: asyncio.Task[None]) -> None:
        self._proving.discard(answering)
        if not answering.cancelled() and (error := answering.exception()) is not None:
            self.owner.failed(error)  # a defect: without an answer the task would only wait, and the block begin again

    async def _prove(self, block: BlockKey) -> None:
        prove = self._proofs.get(block)
        refusal = "" if prove is not None else "it is not granted any more"
        try:
            if prove is not None:
                await prove()
        except BlockhouseError as error:
            refusal = str(error)
            log.warning("insert.unproven", stream=str(self.owner.stream), table=block.table, error=refusal)
        self.session.send(Go(block=block, refusal=refusal))

    async def _insert(self, grant: Grant, prove: Prove) -> Result:
        """Grant one insert and wait for what became of it. Raises Retryable when that cannot be known."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._results[grant.block] = future
        self._proofs[grant.block] = prove
        self.session.send(grant)
        patience = max(0.0, (grant.deadline_ms - self.owner.context.now_ms()) / 1000) + GRACE
        try:
            return await asyncio.wait_for(future, patience)
        except TimeoutError:
            raise Overdue(f"no answer about {grant.block.table} within {patience:.0f} s") from None
        finally:
            self._results.pop(grant.block, None)
            self._proofs.pop(grant.block, None)

    # --- orders ---------------------------------------------------------------------------------------------

    async def _give_orders(self) -> None:
        while True:
            order = self.crashes.given(await self._next_order())
            self.owner.gathers(isinstance(order, Scan))
            self.session.send(order)
            self._touch()
            answer = await self._answer(order)
            self.owner.gathers(isinstance(answer, Sealed))  # until its intents are committed
            self.crashes.heard(order, answer, dropped=self.owner.closed.is_set())
            if (alarm := self.troubles.heard(order, answer)) is not None:
                self.owner.report.alarm(alarm)
            match answer:
                case None | Bye():
                    return
                case Trouble():
                    await self._trouble(order, answer)
                case Sealed() if isinstance(order, Scan):
                    self.owner.task.progressed()
                    await self._sealed(order, answer)
                case Rebuilt():
                    self.owner.task.progressed()
                    await self._rebuilt(answer)
                case _:  # open: what the task sent, in another order than the protocol's
                    log.error("conversation.unexpected", stream=str(self.owner.stream), answer=answer.type)
                    return

    async def _answer(self, order: Scan | Replay | Stop) -> Sealed | Rebuilt | Trouble | Bye | None:
        """The answer to an order; once the stream is revoked, only the task's last word."""
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
        """The stream is revoked: listen until the task's last insert has ended, so that a lock outlives its insert."""
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
            if not ending and (order := self._orders.next(state)) is not None:
                return order
            await self._sleep()

    async def _sleep(self) -> None:
        try:
            async with asyncio.timeout(0.25):
                await self.owner.wake.wait()
        except TimeoutError:
            return

    def _patient(self) -> bool:
        """Whether a lease that is over should last: while inserts are granted, and a little for those that wait."""
        now = loop_time()
        self._over_since = self._over_since or now
        return bool(self._results) or now - self._over_since < LAST_INSERTS

    @staticmethod
    def _inserting(state: StreamState) -> bool:
        return any(t.block is not None and t.block.stage is Stage.INSERTING for t in state.tables)

    # --- answers --------------------------------------------------------------------------------------------

    async def _sealed(self, order: Scan, sealed: Sealed) -> None:
        catalog = self.owner.context.catalog
        resumed = frozenset([await catalog.id_of(table) for table in order.resume])
        committed = await self.owner.sealed(sealed, resumed)
        self.owner.gathers(False)
        if not committed:
            for block in (t.block for t in sealed.tables if t.block is not None):
                self.session.send(Drop(block=BlockKey(table=block.table, begin=block.begin, end=block.end)))
            await self._sleep()
            return
        self.owner.awaited_revisions.note(sealed.tables)
        self._orders.sealed(order, sealed)
        if order.stop is None and sealed.stop == order.position and sealed.log_end > sealed.stop:
            await self._no_room()

    async def _no_room(self) -> None:
        """The next message is of a table for which the metadata has no room: wait until others have left room."""
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
            self.owner.lost(key)
        self._orders.rebuilt(rebuilt.blocks)

    async def _trouble(self, order: Scan | Replay | Stop, trouble: Trouble) -> None:
        """The task cannot read: wait and order again, or take the stream over again."""
        log.warning("task.trouble", stream=str(self.owner.stream), reason=trouble.reason, message=trouble.message[:300])
        self.owner.task.troubled(reason_of(trouble), trouble.message)
        if trouble.retryable:
            await asyncio.sleep(1.0)
        elif isinstance(order, Replay) and trouble.reason == "BelowLogStart":
            for block in order.blocks:
                self.owner.lost(BlockKey(table=block.table, begin=block.begin, end=block.end))
        else:
            await asyncio.sleep(1.0)
            self.owner.reassess(trouble.reason, trouble.message)
