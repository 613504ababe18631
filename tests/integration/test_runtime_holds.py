"""A table that a rollout holds: sealed, acknowledged, held in every stream of the shard, while the others flow."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack
from tests.integration.runtime_pipeline import Loading, healed, loading

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    folder = tmp_path_factory.mktemp("holds")
    with loading(running_stack, folder, "holds", settings={"faults": {"enabled": True}}) as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        yield found


def obeyed(aggregator: AggregatorProcess, table: str, rollout: str) -> bool:
    """Whether the aggregator holds the table and has nothing of it in flight."""
    status = aggregator.status()
    if status is None:
        return False
    named = {t.name: t.rollout for t in status.tables}
    flying = [b for s in status.streams for b in s.blocks if b.table == table]
    return named.get(table) == rollout and not flying


def stored(pipeline: Loading, table: str) -> int:
    (count,) = pipeline.stack.clickhouse[1, 1].execute(f"SELECT count() FROM {table}")[0]
    return int(count)


def test_a_paused_table_gets_no_row_anywhere_until_it_is_released(pipeline: Loading) -> None:
    held, free = pipeline.feed.table("held"), pipeline.feed.table("free")
    over = threading.Event()

    def produce() -> None:
        while not over.is_set():
            pipeline.feed.send(held, 5)
            pipeline.feed.send(free, 5)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        pipeline.wait("rows of both", lambda: stored(pipeline, held) > 0 < stored(pipeline, free))
        asked, other = pipeline.aggregators[:2]
        asked.hold(held, "rollout-1")
        for aggregator in pipeline.aggregators:
            pipeline.wait("the hold obeyed", lambda a=aggregator: obeyed(a, held, "rollout-1"))
        at_hold, free_at_hold = stored(pipeline, held), stored(pipeline, free)
        other.kill()  # the next owner of its streams obeys the hold too
        pipeline.wait("the other table continues", lambda: stored(pipeline, free) > free_at_hold + 300)
        assert stored(pipeline, held) == at_hold
        pipeline.heal()
        pipeline.wait("the hold found again after a restart", lambda: obeyed(other, held, "rollout-1"))
        assert stored(pipeline, held) == at_hold
    finally:
        over.set()
        producer.join()
    assert asked.release(held, "rollout-1")
    assert not asked.release(held, "rollout-1"), "released twice"
    pipeline.settle(held, free)


def test_a_table_is_paused_by_one_rollout_at_a_time(pipeline: Loading) -> None:
    table = pipeline.feed.table("claimed")
    first, second = pipeline.aggregators[:2]
    first.hold(table, "one")
    second.hold(table, "one")  # the same rollout may ask again, and anybody
    with pytest.raises(OSError, match="409"):
        second.hold(table, "two")
    with pytest.raises(OSError, match="409"):
        second.release(table, "two")
    assert second.release(table, "one")


def test_a_block_that_is_inherited_while_its_table_is_paused_is_stored_first(pipeline: Loading) -> None:
    """A pause waits until nothing is in flight: indefinitely, were a paused table's block not replayed."""
    table = pipeline.feed.table("inherited")
    pipeline.feed.send(table, 5)
    pipeline.settle(table)
    owner = pipeline.owner("a", 0)
    survivor = pipeline.peer(owner)
    owner.arm_fault("after-commit", action="kill-aggregator", stream=pipeline.stream("a", 0))
    pipeline.feed.send(table, 5, to=[("a", 0)])
    pipeline.wait("its death", lambda: not owner.alive)
    survivor.hold(table, "rollout-1")
    assert pipeline.owner("a", 0, other_than=owner) is survivor
    pipeline.wait("the hold obeyed", lambda: obeyed(survivor, table, "rollout-1"))
    assert survivor.release(table, "rollout-1")
    pipeline.heal()
    pipeline.settle(table)
