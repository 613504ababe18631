"""The claim on a block's table, without which nothing of the block is stored or decided.

Asked once per topic and lock: under the lock of the table no other pipeline can change what was answered.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from blockhouse.streams import incarnation
from blockhouse_aggregator.runtime.ports import Lock, Shard
from blockhouse_aggregator.runtime.stream.block import BlockToStore


@dataclass(frozen=True, slots=True)
class ClaimedTables:
    """Of one aggregator. Used on the event loop only."""

    shard: Shard
    _known: dict[str, tuple[Lock, dict[tuple[str, str], bool]]] = field(default_factory=dict)

    async def claimed(self, block: BlockToStore, lock: Lock) -> BlockToStore:
        """The block, with what the claims state of rows that name no topic. Raises Blocked(TableClaimed) when another
        pipeline loads the table and nothing would separate its rows from ours, Retryable."""
        table = block.table.full_name
        held, answers = self._known.get(table, (None, {}))
        if held is not lock:
            answers = {}
            self._known[table] = (lock, answers)
        topic = (block.stream.cluster, incarnation(block.stream.topic, block.topic_id))
        if topic not in answers:
            answers[topic] = await self.shard.claimed(block.table, *topic)
        return replace(block, sole=block.sole and answers[topic])
