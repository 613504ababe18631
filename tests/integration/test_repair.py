"""`blockhouse repair` on real servers: both replicas lose a part that was acknowledged, while aggregators load."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from blockhouse import cli
from blockhouse_aggregator.audit import run
from e2e.stack import Stack
from tests.integration.conftest import Names
from tests.integration.runtime_group import Group
from tests.integration.runtime_pipeline import Loading, loading

pytestmark = [pytest.mark.integration, pytest.mark.long]
BLOCKHOUSE = Path(sys.executable).with_name("blockhouse")


@pytest.fixture
def pipeline(stack: Stack, names: Names, tmp_path: Path) -> Iterator[Loading]:
    name = names.stem.replace("_", "-")[-24:].strip("-")
    with loading(stack, tmp_path, name, partitions=1, clusters=1) as found:
        yield found


def repair(pipeline: Loading, *options: str) -> int:
    """The command's exit code."""
    config = pipeline.aggregators[0].folder / "aggregator.yaml"
    with pytest.raises(SystemExit) as exit_:
        cli.main(["repair", pipeline.stream("a", 0), "--config", str(config), *options])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def lose_a_part(stack: Stack, table: str, part: str, while_down: Callable[[], None] = lambda: None) -> list[int]:
    """Every replica loses its power, and with it the part: offsets of its messages."""
    servers = list(stack.clickhouse.values())
    rows = servers[0].execute(f"SELECT DISTINCT _kafka_offset FROM {table} WHERE _part = '{part}'")
    paths = f"SELECT path FROM system.parts WHERE name = '{part}' AND active AND database = 'default'"
    folders = [server.execute(f"{paths} AND table = '{table.partition('.')[2]}'")[0][0] for server in servers]
    for server in servers:
        server.kill()
    for folder in folders:
        shutil.rmtree(folder)
    while_down()
    for server in servers:
        server.start(wait=False)
    for server in servers:
        server.wait_ready()
    return sorted(offset for (offset,) in rows)


def stop_merges(stack: Stack, table: str) -> None:
    """Until the servers start again. Of a merged part 18.16 has the sources on disk for a while, whose rows it uses:
    nothing would be lost then (docs/operations.md)."""
    for server in stack.clickhouse.values():
        server.execute(f"SYSTEM STOP MERGES {table}")


def parts(stack: Stack, table: str) -> list[str]:
    """Those that every replica has, oldest first."""
    known = f"SELECT name FROM system.parts WHERE active AND table = '{table.partition('.')[2]}'"
    first, *others = [
        [name for (name,) in server.execute(f"{known} ORDER BY max_block_number")]
        for server in stack.clickhouse.values()
    ]
    return [name for name in first if all(name in each for each in others)]


def lost_parts(pipeline: Loading, table: str) -> float:
    """As the aggregators report it; 18.16 counts the parts of all tables together."""
    names = ("*", table)
    return sum(a.metric("blockhouse_lost_parts", table=name) for a in pipeline.aggregators for name in names)


def stored(stack: Stack, table: str) -> int:
    """Rows of the table on its first replica."""
    ((count,),) = stack.clickhouse[1, 1].execute(f"SELECT count() FROM {table}")
    return int(count)


def of(report: dict[str, Any], table: str) -> dict[str, Any]:
    (found,) = [each for each in report["tables"] if each["table"] == table]
    return dict(found)


def test_a_part_that_both_replicas_lost_is_filled_while_the_stream_is_loaded(
    stack: Stack, pipeline: Loading, names: Names, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed, group, table = pipeline.feed, Group(pipeline.pipeline), pipeline.feed.table(names.table)
    stop_merges(stack, table)
    with feed.flowing(table):
        pipeline.wait("a hundred messages stored", lambda: group.committed().get(0, (0, ""))[0] > 100)
        pipeline.wait("two parts on every replica", lambda: len(parts(stack, table)) > 1)
        hole = lose_a_part(stack, table, parts(stack, table)[-2])  # the newest may still be in flight
        after = group.committed()[0][0]
        pipeline.wait("more messages stored", lambda: group.committed()[0][0] > after + 50)

        pipeline.wait("the loss noticed", lambda: lost_parts(pipeline, table) > 0)

        assert repair(pipeline, "--from", "0", "--json") == 1
        found = of(json.loads(capsys.readouterr().out), table)
        missing = [o for run in found["ranges"] for o in range(run["from"], run["to"])]
        assert missing == hole
        assert (found["missing"], found["missingRows"], found["filled"]) == (len(hole), 3 * len(hole), 0)

        assert repair(pipeline, "--from", "0", "--json", "--execute") == 0
        filled = of(json.loads(capsys.readouterr().out), table)
        assert (filled["filled"], filled["missing"], filled["surplusRows"]) == (len(hole), 0, 0)

        assert repair(pipeline, "--from-time", "2000-01-01T00:00:00+01:00", "--execute", "--json") == 0
        assert of(json.loads(capsys.readouterr().out), table)["filled"] == 0

    pipeline.settle(table)
    assert run(replace(pipeline.pipeline.audit_spec(tmp_path, 30), manifest=None)).exact
    end = str(group.committed()[0][0] + 1000)
    assert repair(pipeline, "--from", "0", "--to", end) == 3
    assert "up to where the group has committed" in capsys.readouterr().err


def test_where_the_last_part_is_lost_an_old_block_in_flight_does_not_wait_for_it(
    stack: Stack, pipeline: Loading, names: Names, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The window forgets so soon that rows have to decide, and no replica has the part that had the last quorum."""
    feed = pipeline.feed
    table = feed.table(names.table, settings={"replicated_deduplication_window": 1})
    stop_merges(stack, table)
    for _ in range(3):
        feed.send(table, 20)
        pipeline.settle(table)

    def owner_dies() -> None:
        owner = pipeline.owner("a", 0)
        feed.send(table, 20)
        pipeline.wait("a block in flight", lambda: any(stream.in_flight for stream in owner.streams()))
        owner.kill()

    hole = lose_a_part(stack, table, parts(stack, table)[-1], while_down=owner_dies)
    pipeline.heal()
    pipeline.wait("the block stored", pipeline.pipeline.quiet)
    pipeline.wait("the loss noticed", lambda: lost_parts(pipeline, table) > 0)
    assert repair(pipeline, "--from", "0", "--json", "--execute") == 0
    assert of(json.loads(capsys.readouterr().out), table)["filled"] == len(hole) > 0

    pipeline.settle(table)
    assert run(replace(pipeline.pipeline.audit_spec(tmp_path, 30), manifest=None)).exact


def test_a_repair_that_is_killed_in_the_middle_and_run_again_is_exact(
    stack: Stack, pipeline: Loading, names: Names, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of four hundred messages a hundred are dropped; of its many small blocks the killed one has stored some."""
    feed = pipeline.feed
    table = feed.table(names.table, partition_by="intDiv(_kafka_offset, 100)")
    feed.send(table, 400)
    pipeline.settle(table)
    whole = stored(stack, table)
    stack.clickhouse[1, 1].execute(f"ALTER TABLE {table} DROP PARTITION 1")
    config = yaml.safe_load((pipeline.aggregators[0].folder / "aggregator.yaml").read_text())
    config["blocks"] = {**config["blocks"], "maxRows": 9}
    file = tmp_path / "small-blocks.yaml"
    file.write_text(yaml.safe_dump(config))
    hole = stored(stack, table)
    assert hole == whole - 300

    arguments = [pipeline.stream("a", 0), "--config", str(file), "--from", "0", "--execute"]
    with feed.flowing(table):
        killed = subprocess.Popen([BLOCKHOUSE, "repair", *arguments])
        before = f"SELECT count() FROM {table} WHERE _kafka_offset >= 100 AND _kafka_offset < 200"
        pipeline.wait("some of it loaded", lambda: stack.clickhouse[1, 1].execute(before)[0][0] > 0, timeout=60)
        killed.kill()
        assert killed.wait(30) < 0, "it was over before it was killed"
        assert repair(pipeline, "--from", "0", "--execute", "--json") == 0
        again = of(json.loads(capsys.readouterr().out), table)
    assert 0 < again["filled"] < 100
    pipeline.settle(table)
