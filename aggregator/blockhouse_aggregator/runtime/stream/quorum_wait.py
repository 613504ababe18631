"""Waiting until no part of a table waits for its quorum: before that neither an "ok" nor provenance is believed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from blockhouse.errors import Overdue
from blockhouse_aggregator.clickhouse.quorum import QuorumSnapshot, acknowledgeable
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.ports import Shard

QUORUM_POLL = 0.25


@dataclass(frozen=True, slots=True)
class QuorumWait:
    """`patience` is how many seconds a part may take. Both methods raise Retryable when it takes longer."""

    shard: Shard
    patience: float

    async def settled(self, table: ServerTable, *, retry_after: float = 1.0) -> QuorumSnapshot:
        """The first snapshot in which no quorum is pending."""
        snapshot = await self.shard.quorum(table)
        deadline = loop_time() + self.patience
        while snapshot.pending:
            if loop_time() > deadline:
                text = f"table {table.full_name}: a part has waited for its quorum for {self.patience} s"
                raise Overdue(text, after=retry_after)
            await asyncio.sleep(QUORUM_POLL)
            snapshot = await self.shard.quorum(table)
        return snapshot

    async def acknowledged(self, table: ServerTable, before: QuorumSnapshot) -> bool:
        """The server sent "ok" for a block it may have had already: wait until no quorum is pending, then compare with
        the snapshot from before the block was sent."""
        after = await self.settled(table, retry_after=0.2)
        return acknowledgeable(before, after)
