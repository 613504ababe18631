"""An installation of an older version, with data and blocks in flight, is upgraded under load, one by one.

    git worktree add --detach /tmp/before 7b3d688 && make -C /tmp/before setup
    UPGRADE_FROM=/tmp/before SEED=1 SEEDS=5 .venv/bin/pytest tests/integration/test_upgrade.py

A seed decides which aggregator is first, whether it ends in order or is killed, and at which moment of a block. The
steps are those of docs/clickhouse.md: all aggregators first, then the column `_kafka_topic`.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from blockhouse import cli
from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack
from e2e.stack.tables import create_replicated_table
from tests.integration.runtime_pipeline import Loading, loading

FROM = os.environ.get("UPGRADE_FROM", "")
FIRST = int(os.environ.get("SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("SEEDS", "1")))
pytestmark = [
    pytest.mark.integration,
    pytest.mark.clickhouse,
    pytest.mark.skipif(not FROM, reason="UPGRADE_FROM names no checkout of the older version"),
]
COLUMNS = (
    "id UInt64, text String, _kafka_cluster String, _kafka_partition UInt32, _kafka_offset UInt64, _kafka_row UInt32"
)
WAYS = ("SIGTERM", "SIGKILL", "after-insert", "after-commit", "before-insert")
"""How an aggregator of the older version ends: in order, at once, or at one of its own fault points."""
HERE = Path(sys.executable).with_name("blockhouse")


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"SEED={seed}")
def test_a_shard_is_upgraded_under_load(running_stack: Stack, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    name = f"upgrade-{seed}"

    def of_before(pipeline: Loading) -> None:
        for aggregator in pipeline.aggregators:
            aggregator.program = Path(FROM) / ".venv/bin/blockhouse"

    faults = {"faults": {"enabled": True}}
    with loading(running_stack, tmp_path, name, settings=faults, before=of_before) as pipeline:
        tables = [table_from_before(pipeline, f"upgraded_{seed}_{number}") for number in range(3)]
        pipeline.feed.send(tables[0], 5)
        pipeline.settle(tables[0])
        with pipeline.feed.flowing(*tables):
            for aggregator in chance.sample(pipeline.aggregators, len(pipeline.aggregators)):
                pipeline.wait("streams of every aggregator", pipeline.balanced)
                end(pipeline, aggregator, chance.choice(WAYS))
                aggregator.program = HERE
                aggregator.start()
        pipeline.settle(*tables)
        for table in tables:  # with nothing of it in flight
            running_stack.clickhouse[1, 1].execute(f"ALTER TABLE {table} ADD COLUMN _kafka_topic String")
            pipeline.wait("the column recorded", lambda table=table: pipeline.feed.revisions(table) == 2, 90)
        pipeline.wait("streams of every aggregator", pipeline.balanced)
        with pipeline.feed.flowing(*tables):
            end(pipeline, pipeline.aggregators[0], chance.choice(WAYS))
            pipeline.aggregators[0].start()
        pipeline.settle(*tables)
        assert named(pipeline, tables[0]) == {"", f"{name}-events"}, "rows from before and after the column"
        verified_clean(pipeline)


def table_from_before(pipeline: Loading, name: str) -> str:
    """Without the column that the older version does not know."""
    create_replicated_table(pipeline.stack, name, COLUMNS, order_by="id", provenance=False)
    return pipeline.feed.record(name)


def end(pipeline: Loading, aggregator: AggregatorProcess, way: str) -> None:
    if way == "SIGTERM":
        aggregator.terminate()
    elif way == "SIGKILL":
        aggregator.kill()
    else:
        aggregator.arm_fault(way, action="kill-aggregator")
    pipeline.wait(f"the end of {aggregator.name} by {way}", lambda: not aggregator.alive)


def named(pipeline: Loading, table: str) -> set[str]:
    """The names of topics in the table's rows."""
    rows = pipeline.stack.clickhouse[1, 1].execute(f"SELECT DISTINCT _kafka_topic FROM {table}")
    return {topic.partition("/")[0] for (topic,) in rows}


def verified_clean(pipeline: Loading) -> None:
    file = pipeline.aggregators[0].folder / "aggregator.yaml"
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", "--config", str(file)])
    assert ended.value.code == 0
