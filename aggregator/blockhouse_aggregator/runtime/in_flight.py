"""The blocks of one stream that are in flight: each is stored, tried again, or settled without its bytes.

What becomes of a block is an event of the protocol, fed to the stream's owner.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

import structlog

from blockhouse.errors import Retryable
from blockhouse.metadata.model import InFlight
from blockhouse.streams import StreamId
from blockhouse_aggregator.faults.model import Action, Point
from blockhouse_aggregator.faults.strike import strike
from blockhouse_aggregator.gate.messages import BlockKey, BuiltBlock, Grant, Result
from blockhouse_aggregator.protocol.events import Condemned, Event, Insert, InsertFailed, Rebuilt, Stored
from blockhouse_aggregator.protocol.state import Stage, StreamState
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.reporting import StreamReport
from blockhouse_aggregator.runtime.storing import BlockToStore, Verdict
from blockhouse_aggregator.runtime.surroundings import Retry, Surroundings
from blockhouse_aggregator.runtime.translate import sealed_block

log = structlog.get_logger(__name__)

BACKOFF_FIRST, BACKOFF_LAST = 0.2, 10.0
UNUSABLE = Verdict(message="the table is not usable now", after=2.0)


class Owner(Protocol):
    """The part of a stream's owner that is needed here."""

    stream: StreamId
    around: Surroundings
    state: StreamState | None
    report: StreamReport
    closed: asyncio.Event

    async def apply(self, event: Event) -> None: ...
    async def pause(self, seconds: float) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...


class BlocksInFlight:
    """Of one stream in one epoch. `task` hands a grant to the task that holds the bytes, None while there is none;
    `retries` are the waits of the tables whose last attempt failed."""

    def __init__(self, owner: Owner) -> None:
        self.task: Callable[[Grant], Coroutine[Any, Any, Result]] | None = None
        self.retries: dict[int, Retry] = {}
        self._owner = owner
        self._label = str(owner.stream)
        self._built: dict[BlockKey, BuiltBlock] = {}

    def built(self, blocks: Iterable[BuiltBlock]) -> None:
        """The task holds these blocks' bytes, and their round is going to be committed."""
        self._built.update({_key(block): block for block in blocks})

    async def rebuilt(self, block: BuiltBlock) -> None:
        """A block came back from the log; if it is not the recorded one, provenance may show that it is stored."""
        table_id = await self._owner.around.catalog.id_of(block.table)
        self._owner.report.replayed()
        self.built([block])
        await self._owner.apply(Rebuilt(table_id, sealed_block(block)))
        assert self._owner.state is not None
        blocked = self._owner.state.table(table_id).block
        if blocked is not None and blocked.stage is Stage.BLOCKED:
            self._owner.spawn(self._ask_provenance(table_id, blocked.intent, blocked.reason))

    def lost(self, table_id: int, intent: InFlight) -> None:
        """The log no longer holds the whole block: it can only be acknowledged, never rebuilt."""
        self.retries[table_id] = Retry(at=math.inf)
        self._owner.spawn(self._ask_provenance(table_id, intent, "ReplayRangeExpired"))

    async def _ask_provenance(self, table_id: int, intent: InFlight, reason: str) -> None:
        """Until it is answered: nobody else looks after the block meanwhile."""
        name = self._owner.around.catalog.name(table_id)
        while not self._owner.closed.is_set() and self._in_flight(table_id, intent):
            block = self.to_store(table_id, intent, fresh=False)
            if block is None:
                verdict = UNUSABLE
            else:
                verdict = await self._owner.around.storing.stored_without_bytes(block, reason)
            if verdict.stored or verdict.condemned:
                await self._settle(table_id, intent, verdict)
                return
            log.warning("block.waits", stream=self._label, table=name, why=verdict.message)
            await self._owner.pause(max(1.0, verdict.after))

    def _in_flight(self, table_id: int, intent: InFlight) -> bool:
        block = self._owner.state.table(table_id).block if self._owner.state is not None else None
        return block is not None and block.intent == intent

    async def store(self, insert: Insert) -> None:
        """Store one block. As long as no insert was granted, the task still holds the bytes: ask again."""
        while not self._owner.closed.is_set():
            block = self.to_store(insert.table, insert.intent, fresh=insert.fresh)
            if block is None:
                await self._settle(insert.table, insert.intent, UNUSABLE)
                return
            verdict = await self._owner.around.storing.store(block, self)
            final = verdict.stored or verdict.condemned or verdict.rebuild or verdict.result is not None
            if final or self.task is None:
                await self._settle(insert.table, insert.intent, verdict)
                return
            log.info("block.waits", stream=self._label, table=block.table.full_name, why=verdict.message)
            await self._owner.pause(max(0.2, verdict.after))

    async def insert(self, grant: Grant) -> Result:
        """`storing.Task`: hand the grant to the task that holds the bytes."""
        if self.task is None:
            raise Retryable(f"no task works on {self._label} now", after=0.2)
        points = (Point.BEFORE_INSERT, Point.AFTER_INSERT)
        taken = [self._owner.around.faults.take(point, self._label, grant.block.table) for point in points]
        ours = {i.point: i for i in taken if i is not None and i.action is Action.KILL_AGGREGATOR}
        theirs = tuple(i for i in taken if i is not None and i.point not in ours)
        strike(ours.get(Point.BEFORE_INSERT))
        result = await self.task(grant.model_copy(update={"faults": theirs}) if theirs else grant)
        strike(ours.get(Point.AFTER_INSERT))
        return result

    def to_store(self, table_id: int, intent: InFlight, *, fresh: bool) -> BlockToStore | None:
        known = self._owner.around.catalog.by_id(table_id)
        if known is None or known.server is None or self._owner.state is None:
            return None
        revision = known.history.revision(intent.encoded_with)
        return BlockToStore(self._owner.stream, self._owner.state.topic_id, known.server, intent, revision, fresh)

    async def _settle(self, table_id: int, intent: InFlight, verdict: Verdict) -> None:
        table = self._owner.around.catalog.name(table_id)
        begin, end = intent.begin, intent.end
        result = verdict.result
        if result is not None and result.surplus:
            self._owner.report.surplus(table, table_id, f"[{begin}, {end}]", result.surplus)
        block = BlockKey(table=table, begin=begin, end=end)
        built = self._built.pop(block, None)
        if verdict.stored:
            self._owner.report.stored(block, built, verdict, self._owner.around.now_ms())
            self.retries.pop(table_id, None)
            self._owner.around.fault("", "")
            await self._owner.apply(Stored(table_id, begin, end))
        elif verdict.condemned:
            self._owner.report.condemned(table, verdict)
            await self._owner.apply(Condemned(table_id, verdict.condemned))
        else:
            self._owner.report.failed(table, verdict)
            self._back_off(table_id, verdict)
            await self._owner.apply(InsertFailed(table_id, begin, end))

    def _back_off(self, table_id: int, verdict: Verdict) -> None:
        retry = self.retries.setdefault(table_id, Retry())
        retry.tries += 1
        wait = min(BACKOFF_LAST, max(verdict.after, BACKOFF_FIRST * 2 ** min(retry.tries, 8)))
        retry.at = loop_time() + wait * self._owner.around.random.uniform(0.5, 1.0)
        if verdict.fault:
            self._owner.around.fault(verdict.fault, verdict.message)


def _key(block: BuiltBlock) -> BlockKey:
    return BlockKey(table=block.table, begin=block.begin, end=block.end)
