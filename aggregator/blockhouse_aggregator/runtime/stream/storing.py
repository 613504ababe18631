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

from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.schema.expressions import not_proven
from blockhouse.schema.model import Revision
from blockhouse_aggregator.clickhouse.quorum import window_certain
from blockhouse_aggregator.clickhouse.tables import By, ServerTable
from blockhouse_aggregator.gate.messages import Grant, Result
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.ports import Lease, Locks, Shard
from blockhouse_aggregator.runtime.stream.block import FOREIGN_TEXT, FOREIGN_UNDECIDED, BlockToStore
from blockhouse_aggregator.runtime.stream.claimed_tables import ClaimedTables
from blockhouse_aggregator.runtime.stream.outcomes import (
    Absent,
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

CLOCK_SKEW = 30.0
"""Seconds by which our clock and ZooKeeper's may differ without a wrong decision."""


IDENTITY = frozenset({"_kafka_cluster", "_kafka_partition", "_kafka_offset"})
"""Columns that name the message of a row."""
_FRESH_TEXT = (
    "the server calls a block a duplicate that was never sent before: rows of the same cluster, partition and offsets"
    " are there from another topic of that name or another pipeline, and these rows are not stored"
)
_ABSENT_TEXT = (
    "the server calls the block a duplicate, but none of its rows is in the table: its part was dropped or lost"
)


class Task(Protocol):
    """The task that holds the block's bytes."""

    async def insert(self, grant: Grant, lease: Lease) -> Result: ...
    async def prove(self, lease: Lease) -> None:
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
            async with self._queue.holding(block.table.full_name, block.table.zookeeper_path) as lease:
                waited = loop_time() - asked
                block = await self._claims.claimed(block, lease)
                outcome = await self._store(block, task, lease)
                return replace(outcome, lock_wait=waited) if isinstance(outcome, Stored) else outcome
        except Retryable as error:
            return TryAgain(str(error), error.after, fault=error.fault)
        except BlockhouseError as error:
            return Condemned(error.reason or "Blocked", str(error))

    async def provenance(self, block: BlockToStore) -> Provenance:
        """Which rows of the block the table holds. Never raises but for cancellation."""
        return await self._provenance.read(block)

    async def _store(self, block: BlockToStore, task: Task, lease: Lease) -> InsertOutcome:
        decided_ms = self._now_ms()
        if block.fresh:
            if decided_ms - block.intent.intent_ms > self.lifetime * 1000:
                # We were frozen, or the lock took too long: another owner may have replayed it, long enough ago for
                # the server to have forgotten. Only a rebuilt block can be decided.
                return TryAgain("its intent is too old for a first insert", after=0, rebuild=True)
            result = await self._insert(block, task, lease, decided_ms)
            if result.outcome == "stored" and result.deduplicated and result.attempts <= 1:
                return await _known_already(block, result, task, lease)
            # A resend inside the task makes the answer that of a retry, and the quorum was not read before it.
            return _outcome(result, acknowledged=result.attempts <= 1)
        # What was stored once and is lost may still be remembered: of a repair the rows alone decide.
        trusted = None if block.repair else await self._deduplicated(block)
        if block.intent.foreign and not trusted:
            return Condemned(FOREIGN_UNDECIDED, FOREIGN_TEXT)
        before = await self._quorum.settled(block.table) if not trusted else await self._shard.quorum(block.table)
        if not trusted:
            decided_ms = self._now_ms()  # rests on provenance, which the task asks, not on how old the intent is
        result = await self._insert(block, task, lease, decided_ms, ask_provenance=not trusted, trusted=trusted)
        if result.outcome != "stored":
            return _outcome(result, acknowledged=False)
        # Also the answer of provenance is believed only if no part failed while it was asked.
        acknowledged = await self._quorum.acknowledged(block.table, before)
        known = acknowledged and result.deduplicated and block.table.provenance >= IDENTITY
        if known and isinstance(await self._provenance.read_locked(block), Absent):
            # The server remembers the hash; the rows are gone (a dropped or lost part), and no one has them.
            return Condemned("DuplicateButAbsent", _ABSENT_TEXT, result)
        return _outcome(result, acknowledged=acknowledged)

    def _grant(self, block: BlockToStore, decided_ms: int, *, ask_provenance: bool, trusted: By | None) -> Grant:
        """The deadline counts from the decision: a process that was frozen since must not insert on its strength."""
        return Grant(
            block=block.key,
            token=block.token,
            deadline_ms=decided_ms + int(self.lifetime * 1000),
            ask_provenance=ask_provenance,
            topic=block.origin.topic,
            sole=block.sole,
            exact=trusted is By.CONTENT,
            by_token=trusted is By.TOKEN,
            repair=block.repair,
        )

    async def _insert(
        self,
        block: BlockToStore,
        task: Task,
        lease: Lease,
        decided_ms: int,
        *,
        ask_provenance: bool = False,
        trusted: By | None = None,
    ) -> Result:
        async with self._slots:
            if not lease.valid:
                raise Retryable(f"lock of table {block.table.full_name} was lost before the insert", after=0.5)
            grant = self._grant(block, decided_ms, ask_provenance=ask_provenance, trusted=trusted)
            inserting = asyncio.ensure_future(task.insert(grant, lease))
            # If the stream was revoked, no one awaits this result; the next owner's replay decides.
            inserting.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                return await asyncio.shield(inserting)
            except asyncio.CancelledError:
                # The stream is revoked, the insert continues: no one else may have the lock before it has ended.
                await asyncio.wait({inserting})
                raise

    async def _deduplicated(self, block: BlockToStore) -> By | None:
        """By what the server certainly recognises the block if it was inserted before; None: by nothing.

        The table is described now: what the catalog knows is seconds old, and on servers without tokens an ALTER since
        the intent, here or on any replica, makes another part of the same rows.
        """
        table, intent, now = await self._shard.describe(block.table.full_name), block.intent, self._now_ms()
        if table is None or not table.replicated:
            return None
        since = intent.intent_ms - int(CLOCK_SKEW * 1000)
        by = table.identity.by if table.identity.since_ms < since else By.NOTHING
        if by is By.NOTHING or (by is By.TOKEN and intent.foreign):
            return None  # the other aggregator sent no token of ours
        if by is By.CONTENT and not _same_columns(table, block.revision):
            return None
        if by is By.CONTENT and await self._shard.altered_since(table, since):
            return None
        count = await self._shard.blocks_since(table, since)
        certain = window_certain(
            intent.intent_ms, now, count, table.deduplication_window, table.deduplication_window_seconds, CLOCK_SKEW
        )
        return by if certain else None


async def _known_already(block: BlockToStore, result: Result, task: Task, lease: Lease) -> InsertOutcome:
    """The server calls a block a duplicate that no one can have sent before. Where rows name the message they are of,
    no other block has its content: offsets of another topic of the name are in the table, or two pipelines load it.

    Unless the answer is late: a frozen server may have kept our insert until another owner had replayed the block.
    Who still has lock and stream had them all the time."""
    try:
        await task.prove(lease)
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


def _same_columns(table: ServerTable, revision: Revision | None) -> bool:
    """On servers without tokens a column added since changes the part's hash: such a block is not recognised. Nor is
    one with a MATERIALIZED column that may be computed otherwise by now."""
    if revision is None or any(map(not_proven, table.columns)):
        return False
    return [(c.name, c.type) for c in table.columns] == [(c.name, c.type) for c in revision.columns]
