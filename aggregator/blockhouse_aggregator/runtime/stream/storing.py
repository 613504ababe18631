"""One block on its way into the local replica: lock, trust in deduplication or not, grant, acknowledgement.

The rules are those of `docs/protocol.md`, "Old intents" and "Acknowledgement". Nothing here may report a block as
stored unless it is stored for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, assert_never

import structlog

from blockhouse.errors import BlockhouseError, Overdue, Retryable
from blockhouse_aggregator.clickhouse.tables import IDENTITY, By
from blockhouse_aggregator.gate.messages import Grant, Result
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.ports import Lock, Locks, Shard
from blockhouse_aggregator.runtime.stream.block import FOREIGN_TEXT, FOREIGN_UNDECIDED, BlockToStore
from blockhouse_aggregator.runtime.stream.claimed_tables import ClaimedTables
from blockhouse_aggregator.runtime.stream.evidence import Evidence, before_any_insert, evidence
from blockhouse_aggregator.runtime.stream.outcomes import (
    Absent,
    CannotTell,
    Condemned,
    InsertOutcome,
    Provenance,
    Stored,
    TryAgain,
)
from blockhouse_aggregator.runtime.stream.provenance import ProvenanceReader
from blockhouse_aggregator.runtime.stream.quorum_wait import QuorumWait
from blockhouse_aggregator.runtime.tables.lock_queue import LockQueue

log = structlog.get_logger(__name__)

FIRST_INSERT = Evidence(by_rows=False)
_FRESH_TEXT = (
    "the server calls a block a duplicate that was never sent before: rows of the same cluster, partition and offsets"
    " are there from another topic of that name or another pipeline, and these rows are not stored"
)
_ABSENT_TEXT = (
    "the server calls the block a duplicate, but none of its rows is in the table: its part was dropped or lost"
)


class Task(Protocol):
    """The task that holds the block's bytes."""

    async def insert(self, grant: Grant, lock: Lock) -> Result: ...
    async def prove(self, lock: Lock) -> None:
        """Raises Retryable unless an insert under the lock might begin now."""
        ...


class Storing:
    """Stores blocks, each under its table's lock."""

    def __init__(self, shard: Shard, locks: Locks, *, lifetime: float, now_ms: Callable[[], int], slots: int) -> None:
        self._shard = shard
        self._queue = LockQueue(locks)
        self._quorum = QuorumWait(shard, lifetime)
        self._claims = ClaimedTables(shard)
        self._provenance = ProvenanceReader(shard, self._queue, self._quorum, self._claims)
        self.lifetime = lifetime
        self._now_ms = now_ms
        self._slots = asyncio.Semaphore(slots)

    async def store(self, block: BlockToStore, task: Task) -> InsertOutcome:
        """Try once to store the block. Never raises but for cancellation."""
        asked = loop_time()
        try:
            async with self._queue.holding(block.table.full_name, block.table.zookeeper_path) as lock:
                waited = loop_time() - asked
                block = await self._claims.claimed(block, lock)
                outcome = await self._store(block, task, lock)
                return replace(outcome, lock_wait=waited) if isinstance(outcome, Stored) else outcome
        except Retryable as error:
            overdue = isinstance(error, Overdue)
            return TryAgain(str(error), error.after, fault=error.fault, code=error.code, overdue=overdue)
        except BlockhouseError as error:
            return Condemned(error.reason or "Blocked", str(error))

    async def provenance(self, block: BlockToStore) -> Provenance:
        """Which rows of the block the table holds. Never raises but for cancellation."""
        return await self._provenance.read(block)

    async def _store(self, block: BlockToStore, task: Task, lock: Lock) -> InsertOutcome:
        decided_ms = self._now_ms()
        if block.fresh:
            if decided_ms - block.intent.intent_ms > self.lifetime * 1000:
                # We were frozen, or the lock took too long: another owner may have replayed it, long enough ago for
                # the server to have forgotten. Only a rebuilt block can be decided.
                return TryAgain("its intent is too old for a first insert", after=0, rebuild=True)
            result = await self._insert(block, task, lock, self._grant(block, decided_ms))
            if result.outcome == "stored" and result.deduplicated and result.attempts <= 1:
                return await _known_already(block, result, task, lock)
            # A resend inside the task makes the answer that of a retry, and the quorum was not read before it.
            return _outcome(result, acknowledged=result.attempts <= 1)
        found = await evidence(self._shard, block, decided_ms)
        if block.intent.foreign and not found.window:
            return Condemned(FOREIGN_UNDECIDED, FOREIGN_TEXT)
        before = await self._quorum.settled(block.table) if found.by_rows else await self._shard.quorum(block.table)
        failed = await self._shard.failed_parts(block.table) if found.by_rows else ()
        if not found.window:
            decided_ms = self._now_ms()  # rests on provenance, which the task asks, not on how old the intent is
        result = await self._insert(block, task, lock, self._grant(block, decided_ms, found, failed))
        if result.outcome != "stored":
            return _outcome(result, acknowledged=False)
        # Also the answer of provenance is believed only if no part failed while it was asked.
        acknowledged = await self._quorum.acknowledged(block.table, before)
        known = acknowledged and result.deduplicated and block.table.provenance >= IDENTITY
        shown = await self._provenance.read_locked(block) if known else None
        if isinstance(shown, Absent):
            # The server remembers the hash; the rows are gone (a dropped or lost part), and no one has them.
            return Condemned("DuplicateButAbsent", _ABSENT_TEXT, result)
        if result.presence == "absent" and isinstance(shown, CannotTell):
            return TryAgain(f"none of its rows were there, the server knows it, and now {shown.why}", after=1.0)
        return _outcome(result, acknowledged=acknowledged)

    def _grant(
        self, block: BlockToStore, decided_ms: int, found: Evidence = FIRST_INSERT, failed: tuple[str, ...] = ()
    ) -> Grant:
        """The deadline counts from the decision: a process that was frozen since must not insert on its strength."""
        return Grant(
            block=block.key,
            token=block.token,
            deadline_ms=decided_ms + int(self.lifetime * 1000),
            ask_provenance=found.by_rows,
            since_ms=0 if block.repair else before_any_insert(block),
            topic=block.origin.topic,
            sole=block.sole,
            failed_parts=failed,
            exact=found.window is By.CONTENT,
            by_token=found.window is By.TOKEN,
            repair=block.repair,
        )

    async def _insert(self, block: BlockToStore, task: Task, lock: Lock, grant: Grant) -> Result:
        async with self._slots:
            inserting = asyncio.ensure_future(_insert_under(lock, block, task, grant))
            # If the stream was revoked, no one awaits this result; the next owner's replay decides.
            inserting.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                return await asyncio.shield(inserting)
            except asyncio.CancelledError:
                # The stream is revoked, the insert continues: no one else may have the lock before it has ended.
                await asyncio.wait({inserting})
                raise


async def _insert_under(lock: Lock, block: BlockToStore, task: Task, grant: Grant) -> Result:
    """The event loop does nothing else between the check of the lock and the grant, for it may stand still."""
    if not lock.valid:
        raise Retryable(f"lock of table {block.table.full_name} was lost before the insert", after=0.5)
    return await task.insert(grant, lock)


async def _known_already(block: BlockToStore, result: Result, task: Task, lock: Lock) -> InsertOutcome:
    """The server calls a block a duplicate that no one can have sent before. Where rows name the message they are of,
    no other block has its content: offsets of another topic of the name are in the table, or two pipelines load it.

    Unless the answer is late: a frozen server may have kept our insert until another owner had replayed the block.
    Who still has lock and stream had them all the time."""
    try:
        await task.prove(lock)
    except Retryable as error:
        text = f"the server knows the block, and another owner may have stored it meanwhile: {error}"
        return TryAgain(text, after=0, rebuild=True, result=result)
    if block.table.provenance >= IDENTITY:
        return Condemned("FreshDuplicate", _FRESH_TEXT, result)
    text = "taken for stored: without provenance columns two blocks of equal rows are one to the server"
    log.warning("block.fresh_duplicate", table=block.table.full_name, begin=block.intent.begin, why=text)
    return Stored(result)


def _outcome(result: Result, *, acknowledged: bool) -> InsertOutcome:
    """What the task's answer means; `acknowledged`: a "stored" of it can be believed."""
    match result.outcome:
        case "permanent":
            return Condemned(result.reason, result.message, result)
        case "retryable":
            return TryAgain(result.message, fault=result.reason, result=result)
        case "stored":
            if acknowledged:
                return Stored(result, by_provenance=bool(result.presence))
            text = "server reported OK but the quorum is unconfirmed; retrying"
            return TryAgain(text, after=0, result=result)
        case other:
            assert_never(other)
