"""Which rows of a block are stored, when its bytes cannot be sent: asked of the table's provenance columns.

It must never answer Absent or Whole from a table in which a part waits for its quorum, or failed while it was asked,
nor by rows of a part that failed before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.schema.model import TOPIC_COLUMN
from blockhouse_aggregator.clickhouse.presence import StoredRows
from blockhouse_aggregator.runtime.ports import Shard
from blockhouse_aggregator.runtime.stream.block import FOREIGN_TEXT, BlockToStore
from blockhouse_aggregator.runtime.stream.claimed_tables import ClaimedTables
from blockhouse_aggregator.runtime.stream.evidence import before_any_insert, present_table
from blockhouse_aggregator.runtime.stream.outcomes import (
    Absent,
    CannotTell,
    Condemned,
    InsertOutcome,
    Partial,
    Provenance,
    Stored,
    TryAgain,
    Whole,
)
from blockhouse_aggregator.runtime.stream.quorum_wait import QuorumWait
from blockhouse_aggregator.runtime.tables.lock_queue import LockQueue

AGAIN_AFTER_FAILED_PART = 1.0


@dataclass(frozen=True, slots=True)
class ProvenanceReader:
    """Asks under the table's lock: `locks` is the queue that inserts of this aggregator use, too."""

    shard: Shard
    locks: LockQueue
    quorum: QuorumWait
    claims: ClaimedTables

    async def read(self, block: BlockToStore) -> Provenance:
        """Ask once. Never raises but for cancellation."""
        try:
            async with self.locks.holding(block.table.full_name, block.table.zookeeper_path) as lock:
                return await self.read_locked(await self.claims.claimed(block, lock))
        except Retryable as error:
            return CannotTell(str(error), error.after)
        except BlockhouseError as error:
            return CannotTell(str(error), after=None)

    async def read_locked(self, block: BlockToStore) -> Provenance:
        """As `read`, for who holds the table's lock and has claimed it. Raises Retryable when what was read is of
        another table, that has the name now: of the block's own nothing is known then."""
        if block.intent.foreign:
            return CannotTell(FOREIGN_TEXT, after=None)
        if block.revision is None and TOPIC_COLUMN in block.table.provenance:
            return CannotTell("its schema revision is not known here: nor is which topic its rows name", after=None)
        try:
            before = await self.quorum.settled(block.table)
            failed = await self.shard.failed_parts(block.table)
            rows = await self.shard.stored(block.table, block.origin, block.intent.begin, block.intent.end, failed)
            removed = "" if block.repair else await self.shard.rows_removed(block.table, before_any_insert(block))
            if not await self.quorum.acknowledged(block.table, before):
                return CannotTell("a part failed while provenance was asked", AGAIN_AFTER_FAILED_PART)
        except Retryable as error:
            return CannotTell(str(error), error.after)
        except BlockhouseError as error:
            return CannotTell(str(error), after=None)
        await present_table(self.shard, block)
        found = _judge(block, rows)
        if removed and not isinstance(found, Whole):
            return CannotTell(f"what is not there may have been removed since: {removed}", after=None)
        return found


def _judge(block: BlockToStore, rows: StoredRows) -> Provenance:
    """A block of one part is stored whole or not at all. Of one over several partitions each message may have only some
    of its rows, and how many there should be is only known with the log."""
    expected = block.intent.messages
    if not rows.counts:
        return Absent()
    one_part = block.table.partition_key in ("", "tuple()")
    if one_part and len(rows.counts) == expected:
        return Whole()
    return Partial(len(rows.counts), expected, sum(rows.counts.values()))


def without_bytes(found: Provenance, reason: str) -> InsertOutcome:
    """What the answer means for a block that cannot be rebuilt, for `reason`: only a whole one is acknowledged."""
    match found:
        case Whole():
            return Stored(by_provenance=True)
        case Absent():
            return Condemned(reason, "none of its messages is stored, and they cannot be rebuilt")
        case Partial(messages=messages, expected=expected):
            return Condemned(reason, f"{messages} of {expected} messages are stored and the rest cannot be rebuilt")
        case CannotTell(why=why, after=after):
            return Condemned(reason, why) if after is None else TryAgain(why, after)
        case _:
            assert_never(found)
