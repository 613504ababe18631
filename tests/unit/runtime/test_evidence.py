"""What decides an inherited block: its rows before the deduplication window, and the window only where rows show
nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse_aggregator.clickhouse.tables import By, Identity
from blockhouse_aggregator.gate.messages import Result
from blockhouse_aggregator.runtime.stream.block import BlockToStore
from blockhouse_aggregator.runtime.stream.outcomes import CannotTell, Condemned, Stored, TryAgain, Whole
from tests.unit.runtime.test_storing import BLOCK, FOREIGN_BLOCK, FULL, NOW, World, storing

TOKENS = Identity(By.TOKEN, NOW - 60_000)
INHERITED = replace(BLOCK, table=FULL)


async def granted(world: World, block: BlockToStore = INHERITED) -> tuple[bool, bool, bool]:
    """The one grant's `ask_provenance`, `exact` and `by_token`."""
    await storing(world).store(block, world)
    (grant,) = world.grants
    assert grant.since_ms < BLOCK.intent.intent_ms - 1000, "clocks may differ"
    return grant.ask_provenance, grant.exact, grant.by_token


@pytest.mark.parametrize("by", [By.CONTENT, By.TOKEN])
async def test_rows_are_asked_though_the_window_is_certain(by: By) -> None:
    """DETACH PARTITION empties a window, and a table that took the name of another one has hashes of its own."""
    world = World(table=replace(FULL, identity=Identity(by, NOW - 60_000 if by is By.TOKEN else 0)))
    assert await granted(world) == (True, by is By.CONTENT, by is By.TOKEN)


async def test_a_merging_engine_is_decided_by_the_window_while_that_is_certain() -> None:
    merging = replace(FULL, engine="ReplicatedReplacingMergeTree", sorting_key="id")
    assert await granted(World(table=merging)) == (False, True, False)


async def test_a_foreign_block_is_never_asked_of_its_rows() -> None:
    assert await granted(World(table=FULL), replace(FOREIGN_BLOCK, table=FULL)) == (False, True, False)


async def test_a_block_that_views_may_lack_is_sent_again_under_its_token() -> None:
    viewed = replace(FULL, identity=TOKENS, materialized_views=("default.v",))
    assert await granted(World(table=viewed)) == (False, False, True)
    # Without tokens the server drops a resent block before it reaches any view.
    assert await granted(World(table=replace(viewed, identity=Identity()))) == (True, True, False)


async def test_another_table_of_the_same_name_gets_nothing_under_the_lock_of_the_former_one() -> None:
    world = World(table=replace(FULL, zookeeper_path="/copy"))
    outcome = await storing(world).store(INHERITED, world)
    assert isinstance(outcome, TryAgain)
    assert "/copy" in outcome.message
    assert world.grants == []


async def test_where_rows_were_removed_since_the_window_decides_or_all_of_them_are_there() -> None:
    assert await granted(World(table=FULL, removed="rows were deleted")) == (False, True, False)
    forgotten = World(table=FULL, removed="rows were deleted", recent_blocks=60)
    assert await granted(forgotten) == (True, False, False)


async def test_a_duplicate_whose_rows_were_removed_since_is_no_hole() -> None:
    known = Result(block=BLOCK.key, outcome="stored", attempts=1, elapsed=0.1, deduplicated=True)
    world = World(table=FULL, removed="rows were deleted", outcome=known)
    assert isinstance(await storing(world).store(INHERITED, world), Stored)
    world.removed = ""
    assert isinstance(await storing(world).store(INHERITED, world), Condemned)


async def test_what_is_not_there_and_may_have_been_removed_is_not_proved_absent() -> None:
    found = await storing(World(removed="rows were deleted")).provenance(INHERITED)
    assert found == CannotTell("what is not there may have been removed since: rows were deleted", after=None)
    everything = World(removed="rows were deleted", stored_offsets=BLOCK.intent.messages)
    assert await storing(everything).provenance(INHERITED) == Whole()
