"""What can decide an inherited block, one that an earlier owner may have sent: its rows, or the deduplication window.

Rows are asked first: DETACH and DROP PARTITION empty a window, and a table that took another one's place by RENAME has
hashes of its own, while the rows are there. The window is for what rows cannot show. The rules are those of
`docs/protocol.md`, "Old intents".
"""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse.errors import Retryable
from blockhouse.schema.expressions import not_proven
from blockhouse.schema.model import Revision
from blockhouse_aggregator.clickhouse.quorum import window_certain
from blockhouse_aggregator.clickhouse.tables import By, ServerTable
from blockhouse_aggregator.runtime.ports import Shard
from blockhouse_aggregator.runtime.stream.block import BlockToStore

CLOCK_SKEW = 30.0
"""Seconds by which our clock and ZooKeeper's may differ without a wrong decision."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """`by_rows`: the table's rows are asked first. `window`: by what the server certainly recognises the block if it
    was inserted before; None: by nothing."""

    by_rows: bool = True
    window: By | None = None


async def evidence(shard: Shard, block: BlockToStore, now_ms: int) -> Evidence:
    """Of an inherited block, with its table's lock held.

    The table is described now: what the catalog knows is seconds old. Raises Retryable when another table has taken its
    place: lock and quorum at hand are those of the former one.
    """
    if block.repair:
        return Evidence()  # what was stored once and is lost may still be remembered: the rows alone decide
    table = await present_table(shard, block)
    if table is None:
        return Evidence()
    window = await _window(shard, block, table, now_ms)
    if block.intent.foreign or not table.shows_blocks:
        return Evidence(by_rows=window is None, window=window)
    if window is None:
        return Evidence()
    removed = await shard.rows_removed(table, before_any_insert(block))
    # A server with tokens hands a resent block on to views that failed to get it: rows of the table do not show that.
    views = window is By.TOKEN and bool(table.materialized_views)
    return Evidence(by_rows=not (removed or views), window=window)


async def present_table(shard: Shard, block: BlockToStore) -> ServerTable | None:
    """The block's table as it is now; None: it was dropped. Raises Retryable when another table has its name."""
    table = await shard.describe(block.table.full_name)
    if table is not None and table.zookeeper_path != block.table.zookeeper_path:
        text = f"table {table.full_name}: another table has its name now, at {table.zookeeper_path}"
        raise Retryable(f"{text}, not {block.table.zookeeper_path}; the catalog will notice", after=2.0)
    return table


async def _window(shard: Shard, block: BlockToStore, table: ServerTable, now_ms: int) -> By | None:
    """On servers without tokens an ALTER since the intent, here or on any replica, makes another part of the same
    rows."""
    intent, since = block.intent, before_any_insert(block)
    if not table.replicated:
        return None
    by = table.identity.by if table.identity.since_ms < since else By.NOTHING
    if by is By.NOTHING or (by is By.TOKEN and intent.foreign):
        return None  # the other aggregator sent no token of ours
    if by is By.CONTENT and not _same_columns(table, block.revision):
        return None
    if by is By.CONTENT and await shard.altered_since(table, since):
        return None
    count = await shard.blocks_since(table, since, older_than_ms=intent.intent_ms)
    certain = window_certain(
        intent.intent_ms, now_ms, count, table.deduplication_window, table.deduplication_window_seconds, CLOCK_SKEW
    )
    return by if certain else None


def before_any_insert(block: BlockToStore) -> int:
    """A moment before the first insert of the block, by whichever clock (Unix milliseconds)."""
    return block.intent.intent_ms - int(CLOCK_SKEW * 1000)


def _same_columns(table: ServerTable, revision: Revision | None) -> bool:
    """On servers without tokens a column added since changes the part's hash: such a block is not recognised. Nor is
    one with a MATERIALIZED column that may be computed otherwise by now."""
    if revision is None or any(map(not_proven, table.columns)):
        return False
    return [(c.name, c.type) for c in table.columns] == [(c.name, c.type) for c in revision.columns]
