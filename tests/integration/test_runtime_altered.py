"""Columns added, partitions attached again, tables swapped behind our back while blocks are in flight and owners die:
each row once, whichever owner replays it.

    SEED=1 SEEDS=10 .venv/bin/pytest tests/integration/test_runtime_altered.py

A seed decides the kill (before or after the insert), the moment of the ALTER near it, and the column.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from clickhouse_driver.errors import ServerException
from typer.testing import CliRunner

from blockhouse_aggregator.commands.streams import app as streams_command
from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.tables import create_replicated_table
from tests.integration.runtime_pipeline import Loading, eventually, healed_and_balanced, loading

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.clickhouse]

STREAM = ("a", 0)
FIRST = int(os.environ.get("SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("SEEDS", "3")))
NOTICED_WITHIN = 90.0
COLUMNS = ("extra UInt32", "extra UInt32 DEFAULT 7", "extra String AFTER id", "extra Nullable(Float64) AFTER text")


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    folder = tmp_path_factory.mktemp("altered")
    with loading(running_stack, folder, "altered", settings={"faults": {"enabled": True}}) as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed_and_balanced(running) as found:
        yield found


@dataclass(frozen=True)
class Scene:
    """What one seed decides."""

    point: str
    alter_first: bool
    column: str

    @staticmethod
    def of(seed: int) -> Scene:
        # The four pairs of kill and moment come round in turn, so that a few seeds in a row show them all.
        point, first = [(p, f) for f in (False, True) for p in ("after-insert", "after-commit")][seed % 4]
        return Scene(point, first, random.Random(seed).choice(COLUMNS))


def alter(pipeline: Loading, table: str, column: str) -> float:
    pipeline.stack.clickhouse[1, 1].execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    return time.monotonic()


def killed(pipeline: Loading, table: str, point: str) -> AggregatorProcess:
    """The owner of STREAM, once it has died at `point` with a block of the table."""
    owner = pipeline.owner(*STREAM)
    only = {"table": table} if point == "after-insert" else {}
    owner.arm_fault(point, action="kill-aggregator", stream=pipeline.stream(*STREAM), **only)
    pipeline.wait("its death", lambda: not owner.alive)
    return owner


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"SEED={seed}")
def test_a_column_is_added_while_an_owner_dies_with_a_block_in_flight(pipeline: Loading, seed: int) -> None:
    scene, feed = Scene.of(seed), pipeline.feed
    table = feed.table(f"altered_{seed}")
    feed.send(table, 5)
    pipeline.settle(table)
    with feed.flowing(table):
        if scene.alter_first:
            altered = alter(pipeline, table, scene.column)
            victim = killed(pipeline, table, scene.point)
        else:
            victim = killed(pipeline, table, scene.point)
            altered = alter(pipeline, table, scene.column)
        survivor = pipeline.peer(victim)
        pipeline.wait("the new column recorded", lambda: feed.revisions(table) == 2, NOTICED_WITHIN)
        assert time.monotonic() - altered < NOTICED_WITHIN
        feed.mix_revisions(table)
        assert pipeline.owner(*STREAM, other_than=victim) is survivor
    pipeline.heal()
    pipeline.settle(table)
    found = survivor.metric("blockhouse_provenance_decisions_total", stream=pipeline.stream(*STREAM))
    assert found >= 1, f"SEED={seed}: {scene}: no block of another revision was decided"


def test_a_partition_is_detached_and_attached_between_a_blocks_insert_and_its_replay(pipeline: Loading) -> None:
    """DETACH takes the hashes of its parts out of the window: the server would store the block again."""
    table = pipeline.feed.table("detached")
    victim = killed_with_a_stored_block(pipeline, table)
    for change in ("DETACH", "ATTACH"):
        pipeline.stack.clickhouse[1, 1].execute(f"ALTER TABLE {table} {change} PARTITION tuple()")
    settled_by_rows(pipeline, table, victim)


def test_a_table_is_copied_and_swapped_between_a_blocks_insert_and_its_replay(pipeline: Loading) -> None:
    """The window of the copy holds the hash of what was copied, not of the block."""
    table, servers = pipeline.feed.table("swapped"), list(pipeline.stack.clickhouse.values())
    create_replicated_table(pipeline.stack, "swapped_copy", "id UInt64, text String", order_by="id")
    victim = killed_with_a_stored_block(pipeline, table)
    servers[0].execute(f"INSERT INTO default.swapped_copy SELECT * FROM {table}")
    rows = servers[0].execute(f"SELECT count() FROM {table}")
    for server in servers:
        assert eventually(lambda s=server: s.execute("SELECT count() FROM default.swapped_copy") == rows)
        server.execute(f"RENAME TABLE {table} TO default.swapped_before, default.swapped_copy TO {table}")
    settled_by_rows(pipeline, table, victim)


def test_rows_deleted_between_a_blocks_insert_and_its_replay_do_not_come_back(pipeline: Loading) -> None:
    table, server = pipeline.feed.table("deleted"), pipeline.stack.clickhouse[1, 1]
    victim = killed_with_a_stored_block(pipeline, table)
    rows = "_kafka_cluster = 'a' AND _kafka_partition = 0"
    server.execute(f"ALTER TABLE {table} DELETE WHERE {rows}")
    # 18.16 leaves the last part that had a quorum alone until there is another one.
    server.execute(f"INSERT INTO {table} (id, text) VALUES", [(0, "")], insert_quorum=2)
    there = f"SELECT count() FROM {table} WHERE {rows}"
    assert eventually(lambda: server.execute(there) == [(0,)])
    assert pipeline.owner(*STREAM, other_than=victim) is pipeline.peer(victim)
    pipeline.wait("everything decided", pipeline.pipeline.quiet)
    assert server.execute(there) == [(0,)]


def test_a_column_that_one_replica_has_is_not_written_before_the_other_has_it(pipeline: Loading) -> None:
    feed, table = pipeline.feed, pipeline.feed.table("late")
    feed.send(table, 5)
    pipeline.settle(table)
    early, late = pipeline.stack.clickhouse[1, 1], pipeline.stack.clickhouse[1, 2]
    aggregator = pipeline.pipeline.aggregators[early.replica]
    with not_altered(late, table):
        with suppress(ServerException):  # 18.16 waits for the other one, and reports that it does not follow
            early.execute(f"ALTER TABLE {table} ADD COLUMN extra UInt32", replication_alter_columns_timeout=1)
        assert eventually(lambda: aggregator.tables()[table].held == "ReplicaLacksColumn", NOTICED_WITHIN)
        assert f"replica {late.replica} lacks column extra" in aggregator.tables()[table].why
        assert feed.revisions(table) == 1
        feed.send(table, 5)
    pipeline.wait("the new column recorded", lambda: feed.revisions(table) == 2, NOTICED_WITHIN)
    pipeline.settle(table)
    assert aggregator.metric("blockhouse_insert_failures_total", table=table, code="286") == 0


def killed_with_a_stored_block(pipeline: Loading, table: str) -> AggregatorProcess:
    """The owner of STREAM, dead before it could commit that a block of the table was stored."""
    pipeline.feed.send(table, 5)
    pipeline.settle(table)
    owner = pipeline.owner(*STREAM)
    owner.arm_fault("after-insert", action="kill-aggregator", stream=pipeline.stream(*STREAM), table=table)
    pipeline.feed.send(table, 5, to=[STREAM])
    pipeline.wait("its death", lambda: not owner.alive)
    return owner


def settled_by_rows(pipeline: Loading, table: str, victim: AggregatorProcess) -> None:
    survivor = pipeline.peer(victim)
    assert pipeline.owner(*STREAM, other_than=victim) is survivor
    pipeline.feed.send(table, 5)
    pipeline.heal()
    pipeline.settle(table)
    decided = survivor.metric("blockhouse_provenance_decisions_total", stream=pipeline.stream(*STREAM))
    assert decided >= 1, "the block was not inherited"


def test_a_dropped_column_and_a_changed_type_hold_their_table_until_they_are_fixed(pipeline: Loading) -> None:
    feed, server = pipeline.feed, pipeline.stack.clickhouse[1, 1]
    dropped, changed, beside = (feed.table(name) for name in ("dropped", "changed", "beside"))
    tables = (dropped, changed)
    feed.send(beside, 5)
    for table in tables:
        feed.send(table, 5)
    pipeline.settle(*tables, beside)
    with feed.flowing(*tables, beside):
        server.execute(f"ALTER TABLE {dropped} DROP COLUMN text")
        server.execute(f"ALTER TABLE {changed} MODIFY COLUMN text FixedString(64)")
        for table in tables:
            wait_held(pipeline, table, "SchemaChange")
        before = stored(pipeline, beside)
        pipeline.wait("the others to flow", lambda: stored(pipeline, beside) > before)
        server.execute(f"ALTER TABLE {dropped} ADD COLUMN text String AFTER id")
        server.execute(f"ALTER TABLE {changed} MODIFY COLUMN text String")
        for table in tables:
            wait_held(pipeline, table, "")
    pipeline.settle(*tables, beside)


def test_a_blocked_block_that_is_provably_absent_is_cut_again_on_an_operators_word(pipeline: Loading) -> None:
    feed, server = pipeline.feed, pipeline.stack.clickhouse[1, 1]
    table = feed.table("recut")
    feed.send(table, 5)
    pipeline.settle(table)
    owner = pipeline.owner(*STREAM)
    _, headers = feed.encode(table, [{"id": 0, "text": ""}])
    server.execute(f"ALTER TABLE {table} DROP COLUMN text")
    feed.send(table, 2, to=[STREAM])
    feed.raw(b"\xff", headers, to=STREAM)  # its dead letter is counted with the block, and again when that is cut again
    feed.send(table, 2, to=[STREAM])
    pipeline.wait("the block to be blocked", lambda: bool(owner.in_flight(table, "blocked")))
    (block,) = owner.in_flight(table, "blocked")
    config = str(owner.folder / "aggregator.yaml")

    def streams(*arguments: str) -> Any:
        return CliRunner().invoke(streams_command, [*arguments, "--config", config])

    name = pipeline.stream(*STREAM)
    assert streams("resolve", name, table, "stored", "--yes").exit_code == 2, "the table shows that it is not"
    dry = streams("recut", name, table)
    assert f"[{block.begin}, {block.end}]" in dry.output
    assert "0 of" in dry.output
    assert owner.in_flight(table, "blocked")
    assert streams("recut", name, table, "--yes").exit_code == 0
    pipeline.wait("it to be abandoned", lambda: not owner.in_flight(table, "blocked"))
    (lagging,) = owner.lagging(name).values()
    assert (lagging.table, lagging.cursor) == (table, block.begin)
    assert owner.logged("alarm", reason="BlockRecut")
    server.execute(f"ALTER TABLE {table} ADD COLUMN text String AFTER id")
    pipeline.settle(table)
    assert streams("recut", name, table, "--yes").exit_code == 2, "nothing is in flight any more"


@contextmanager
def not_altered(server: ClickHouseServer, table: str) -> Iterator[None]:
    """The server carries out no ALTER of the table: until its queue runs again, and on 18.16 until an insert that has
    begun, and sends nothing, has ended."""
    over = threading.Event()

    def rows() -> Iterator[tuple[int, str]]:
        over.wait()
        yield from ()

    def insert() -> None:
        server.execute(f"INSERT INTO {table} (id, text) VALUES", rows())

    server.execute(f"SYSTEM STOP REPLICATION QUEUES {table}")
    with ThreadPoolExecutor(1) as pool:
        inserting = pool.submit(insert)
        begun = f"SELECT count() FROM system.processes WHERE query LIKE 'INSERT INTO {table}%'"
        assert eventually(lambda: server.execute(begun) == [(1,)])
        try:
            yield
        finally:
            over.set()
            server.execute(f"SYSTEM START REPLICATION QUEUES {table}")
            inserting.result(60)


def wait_held(pipeline: Loading, table: str, reason: str) -> None:
    """Until every aggregator holds the table for this reason (an empty one: loads it), in less than NOTICED_WITHIN."""

    def all_do() -> bool:
        answers = [{name: t.held for name, t in a.tables().items()} for a in pipeline.aggregators]
        return {answer.get(table, "unknown") for answer in answers} == {reason}

    assert eventually(all_do, NOTICED_WITHIN), f"{table} is not held for {reason or 'no reason'}"


def stored(pipeline: Loading, table: str) -> int:
    return int(pipeline.stack.clickhouse[1, 1].execute(f"SELECT count() FROM {table}")[0][0])
