"""One block on its way into the local replica: lock, trust in deduplication or not, grant, acknowledgement.

The rules are those of `docs/protocol.md`, "Old intents" and "Acknowledgement". Nothing here may report a block as
stored unless it is stored for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.metadata.model import InFlight
from blockhouse.schema.model import Revision
from blockhouse.streams import StreamId
from blockhouse_aggregator.clickhouse.quorum import QuorumSnapshot, acknowledgeable, window_certain
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.gate.messages import BlockKey, Grant, Result
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.ports import Lease, Locks, Shard
from blockhouse_aggregator.runtime.table_queue import TableQueue

log = structlog.get_logger(__name__)

CLOCK_SKEW = 30.0
"""Seconds by which our clock and ZooKeeper's may differ without a wrong decision."""
QUORUM_POLL = 0.25
FOREIGN_UNDECIDED = "ForeignBlockUndecided"
_FOREIGN_TEXT = (
    "another aggregator sent this block, without provenance, and the server may have forgotten it or its table was"
    " altered since: compare its rows with the table, then `blockhouse streams resolve`"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one attempt to store a block: `stored`, or `condemned` (a reason), or neither: try again, with
    `rebuild` not with the bytes at hand. `lock_wait` is how many seconds it waited for the table's lock."""

    stored: bool = False
    condemned: str = ""
    rebuild: bool = False
    message: str = ""
    fault: str = ""
    after: float = 0.2
    result: Result | None = None
    by_provenance: bool = False
    lock_wait: float = 0.0


class Task(Protocol):
    """The task that holds the block's bytes."""

    async def insert(self, grant: Grant) -> Result: ...


@dataclass(frozen=True, slots=True)
class BlockToStore:
    """A block with everything the decision needs. `revision` is the one the block was encoded with."""

    stream: StreamId
    topic_id: str
    table: ServerTable
    intent: InFlight
    revision: Revision | None
    fresh: bool

    @property
    def key(self) -> BlockKey:
        return BlockKey(table=self.table.full_name, begin=self.intent.begin, end=self.intent.end)

    @property
    def token(self) -> str:
        s = self.stream
        return f"{self.topic_id}/{s.partition}/{self.table.full_name}/{self.intent.begin}-{self.intent.end}"


class Storing:
    """Stores blocks, each under its table's lock."""

    def __init__(self, shard: Shard, locks: Locks, *, lifetime: float, now_ms: Callable[[], int], slots: int) -> None:
        self._shard = shard
        self._queue = TableQueue(locks)
        self.lifetime = lifetime
        self._now_ms = now_ms
        self._slots = asyncio.Semaphore(slots)

    async def store(self, block: BlockToStore, task: Task) -> Verdict:
        """Try once to store the block. Never raises but for cancellation."""
        asked = loop_time()
        try:
            async with self._queue.holding(block.table.full_name) as lease:
                waited = loop_time() - asked
                return replace(await self._store(block, task, lease), lock_wait=waited)
        except Retryable as error:
            return Verdict(message=str(error), fault=str(getattr(error, "fault", "")), after=error.after)
        except BlockhouseError as error:
            reason = getattr(error, "reason", "") or getattr(error, "on", "") or "Blocked"
            return Verdict(condemned=reason, message=str(error))

    async def stored_without_bytes(self, block: BlockToStore, reason: str = "ReplayRangeExpired") -> Verdict:
        """The block cannot be rebuilt, for `reason`: only provenance can acknowledge it, whole or not at all."""
        if block.intent.foreign:
            return Verdict(condemned=reason, message=_FOREIGN_TEXT)
        try:
            async with self._queue.holding(block.table.full_name):
                before = await self._settled(block.table)
                b = block.intent
                rows = await self._shard.stored(block.table, block.stream, b.begin, b.end)
                if not await self._acknowledged(block, before):
                    return Verdict(message="a part failed while provenance was asked", after=1.0)
        except Retryable as error:
            return Verdict(message=str(error), after=error.after)
        except BlockhouseError as error:
            return Verdict(condemned=reason, message=str(error))
        # A block of one part is stored whole or not at all. Of one over several partitions each message may have only
        # some of its rows, and how many there should be nobody knows without the log.
        one_part = block.table.partition_key in ("", "tuple()")
        if one_part and len(rows.counts) == block.intent.messages:
            return Verdict(stored=True, by_provenance=True)
        text = f"{len(rows.counts)} of {block.intent.messages} messages are stored and the rest cannot be rebuilt"
        return Verdict(condemned=reason, message=text)

    async def absent(self, block: BlockToStore) -> Verdict:
        """`stored` (nothing to be done) when it is proved that no row of the block is in the table, `condemned` when
        that is not so or cannot be known."""
        if block.intent.foreign:
            return Verdict(condemned=FOREIGN_UNDECIDED, message=_FOREIGN_TEXT)
        try:
            async with self._queue.holding(block.table.full_name):
                before = await self._settled(block.table)
                rows = await self._shard.stored(block.table, block.stream, block.intent.begin, block.intent.end)
                if not await self._acknowledged(block, before):
                    return Verdict(message="a part failed while provenance was asked", after=1.0)
        except Retryable as error:
            return Verdict(message=str(error), after=error.after)
        except BlockhouseError as error:
            return Verdict(condemned=getattr(error, "on", "") or "Blocked", message=str(error))
        if not rows.counts:
            return Verdict(stored=True)
        text = f"{sum(rows.counts.values())} rows of {len(rows.counts)} of its messages are stored"
        return Verdict(condemned="NotAbsent", message=text)

    async def _store(self, block: BlockToStore, task: Task, lease: Lease) -> Verdict:
        decided_ms = self._now_ms()
        if block.fresh:
            if decided_ms - block.intent.intent_ms > self.lifetime * 1000:
                # We were frozen, or the lock took too long: somebody else may have replayed it, long enough ago for
                # the server to have forgotten. Only a rebuilt block can be decided.
                return Verdict(message="its intent is too old for a first insert", rebuild=True, after=0)
            result = await self._insert(block, task, lease, decided_ms)
            # A resend inside the task makes the answer that of a retry, and there was no look at the quorum before it.
            return self._verdict(result, acknowledged=result.attempts <= 1)
        trusted = await self._deduplicated(block)
        if block.intent.foreign and not trusted:
            return Verdict(condemned=FOREIGN_UNDECIDED, message=_FOREIGN_TEXT)
        before = await self._settled(block.table) if not trusted else await self._shard.quorum(block.table)
        if not trusted:
            decided_ms = self._now_ms()  # rests on provenance, which the task asks, not on how old the intent is
        result = await self._insert(block, task, lease, decided_ms, ask_provenance=not trusted, exact=trusted)
        if result.outcome != "stored":
            return self._verdict(result, acknowledged=False)
        # Also what provenance said is believed only if no part failed while it was asked.
        return self._verdict(result, acknowledged=await self._acknowledged(block, before))

    def _grant(self, block: BlockToStore, decided_ms: int, *, ask_provenance: bool, exact: bool) -> Grant:
        """The deadline counts from the decision: a process that was frozen since must not insert on its strength."""
        deadline = decided_ms + int(self.lifetime * 1000)
        return Grant(
            block=block.key, token=block.token, deadline_ms=deadline, ask_provenance=ask_provenance, exact=exact
        )

    async def _insert(
        self,
        block: BlockToStore,
        task: Task,
        lease: Lease,
        decided_ms: int,
        *,
        ask_provenance: bool = False,
        exact: bool = False,
    ) -> Result:
        async with self._slots:
            if not lease.valid:
                raise Retryable(f"lock of table {block.table.full_name} was lost before the insert", after=0.5)
            grant = self._grant(block, decided_ms, ask_provenance=ask_provenance, exact=exact)
            inserting = asyncio.ensure_future(task.insert(grant))
            # Of a stream that was dropped meanwhile nobody asks for it: whoever replays the block finds out.
            inserting.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                return await asyncio.shield(inserting)
            except asyncio.CancelledError:
                # The stream is dropped, the insert goes on: nobody else may have the lock before it has ended.
                await asyncio.wait({inserting})
                raise

    def _verdict(self, result: Result, *, acknowledged: bool) -> Verdict:
        if result.outcome == "permanent":
            return Verdict(condemned=result.reason, message=result.message, result=result)
        if result.outcome == "retryable":
            return Verdict(message=result.message, fault=result.reason, result=result)
        by_provenance = bool(result.presence)
        if acknowledged:
            return Verdict(stored=True, result=result, by_provenance=by_provenance)
        return Verdict(
            message="said to be stored, but its quorum is not certain: it is sent again", result=result, after=0
        )

    async def _deduplicated(self, block: BlockToStore) -> bool:
        """Whether the server certainly recognises the block if it was inserted before.

        The table is looked at now: what the catalog knows is seconds old, and on servers without tokens an ALTER since
        the intent, here or on any replica, makes another part of the same rows.
        """
        table, intent, now = await self._shard.describe(block.table.full_name), block.intent, self._now_ms()
        if table is None or not table.replicated or not _same_columns(table, block.revision):
            return False
        since = intent.intent_ms - int(CLOCK_SKEW * 1000)
        if await self._shard.altered_since(table, since):
            return False
        count = await self._shard.blocks_since(table, since)
        return window_certain(
            intent.intent_ms, now, count, table.deduplication_window, table.deduplication_window_seconds, CLOCK_SKEW
        )

    async def _acknowledged(self, block: BlockToStore, before: QuorumSnapshot) -> bool:
        """The server said ok to a block it may have had already: wait until no quorum is pending, then compare."""
        after = await self._settled(block.table, retry_after=0.2)
        return acknowledgeable(before, after)

    async def _settled(self, table: ServerTable, *, retry_after: float = 1.0) -> QuorumSnapshot:
        """Wait until no part of the table waits for its quorum: neither an ok nor provenance is believed before."""
        snapshot = await self._shard.quorum(table)
        deadline = loop_time() + self.lifetime
        while snapshot.pending:
            if loop_time() > deadline:
                text = f"table {table.full_name}: a part has waited for its quorum for {self.lifetime} s"
                raise Retryable(text, after=retry_after)
            await asyncio.sleep(QUORUM_POLL)
            snapshot = await self._shard.quorum(table)
        return snapshot


def _same_columns(table: ServerTable, revision: Revision | None) -> bool:
    """On servers without tokens a column added since changes the part's hash: such a block is not recognised."""
    if revision is None:
        return False
    return [(c.name, c.type) for c in table.columns] == [(c.name, c.type) for c in revision.columns]
