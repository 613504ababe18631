"""Tables that are dropped and created again, or whose copy takes their name, under the real driver; steered by hand."""

from __future__ import annotations

import pytest

from tests.simulation.clickhouse import Table
from tests.simulation.replaced_tables import ReplacedTables
from tests.simulation.run import Universe, universe
from tests.unit.simulation.test_directed_worlds import given, killed_in_mid_insert, produced, stored


def operator(world: Universe) -> ReplacedTables:
    return ReplacedTables(world.world, world.nodes, world.shard, world.misfortunes)


def stored_at(made: Universe, count: int) -> Table:
    """The table, with so many rows of messages that were just produced."""
    table = made.shard.tables[0]
    produced(made, 0, count)
    assert made.run(5, lambda: stored(made, 0) == count and made.shard.under_way() == [])
    made.run(1)
    return table


def test_what_comes_after_a_table_was_dropped_is_in_the_one_that_was_created() -> None:
    with universe(given(tables=1)) as made:
        made.run(3)
        former = stored_at(made, 4)
        assert operator(made).drop()
        produced(made, 0, 3)
        made.settle()
        assert made.world.harm is None
        assert made.shard.tables[0] is not former
        assert sorted(row[1] for row in made.shard.tables[0].rows) == [4, 5, 6]


@pytest.mark.parametrize("copied", [True, False])
def test_a_block_in_flight_is_once_in_the_copy_that_took_the_name(copied: bool) -> None:
    """Whether the copy is from after the block was stored, and has it, or from just before."""
    with universe(given(tables=1)) as made:
        made.run(3)
        former = stored_at(made, 4)
        owner = killed_in_mid_insert(made, 0, 5)
        if copied:
            assert made.run(5, lambda: stored(made, 0) == 9)
        else:
            owner.server.kill()
            assert made.run(60, lambda: stored(made, 0) == 4 and made.shard.under_way() == [])
            owner.server.start()
        operator(made).replace_by_a_copy(former)
        assert made.shard.tables[0] is not former
        assert stored(made, 0) == (9 if copied else 4)
        owner.start()
        made.settle()
        assert made.world.harm is None
        assert stored(made, 0) == 9


def test_a_row_that_neither_a_copy_nor_a_former_table_has_is_lost() -> None:
    """The oracle excuses only what a person removed on purpose."""
    with universe(given(tables=1)) as made:
        made.run(3)
        stored_at(made, 4)
        log = made.clusters["a"].logs[0]
        operator(made).replace_by_a_copy(made.shard.tables[0])
        copy = made.shard.tables[0]
        assert not list(made.oracle.missing(log.stream, log.content, 0, 0, 4))
        copy.rows.clear()
        assert len(list(made.oracle.missing(log.stream, log.content, 0, 0, 4))) == 4
