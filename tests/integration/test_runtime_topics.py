"""Rows of one table that are of several topics: one that was created again under its name, or two pipelines.

Cluster, partition and offset are the same then. An intent too old for deduplication is decided by the rows of its own
topic alone, and the audit judges those of the topic that is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from blockhouse.config.endpoints import ClickHouse, KafkaCluster
from blockhouse_aggregator import audit
from blockhouse_aggregator.commands.streams import app as streams_command
from blockhouse_aggregator.coordination.markers import Decisions
from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack
from tests.integration.conftest import Names
from tests.integration.runtime_pipeline import Loading, loading
from tests.integration.test_runtime_abnormal import accept, stops
from tests.integration.test_runtime_world_changes import recreate

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.clickhouse]

STREAM = ("a", 0)
UNCERTAIN = {"replicated_deduplication_window": 1}
"""A window that is certain of nothing: provenance decides every replay."""
UNNAMED = "id UInt64, text String, _kafka_cluster String, _kafka_partition UInt32, _kafka_offset UInt64"
FAULTS = {"faults": {"enabled": True}}


def one_stream(stack: Stack, folder: Path, name: str) -> Iterator[Loading]:
    with loading(stack, folder, name, partitions=1, aggregators=1, clusters=1, settings=FAULTS) as found:
        yield found


@pytest.fixture
def pipeline(stack: Stack, names: Names, tmp_path: Path) -> Iterator[Loading]:
    yield from one_stream(stack, tmp_path, _short(names))


@pytest.fixture
def other(stack: Stack, names: Names, tmp_path: Path) -> Iterator[Loading]:
    yield from one_stream(stack, tmp_path / "other", f"o-{_short(names)}")


def _short(names: Names) -> str:
    return names.stem.replace("_", "-")[-22:].strip("-")


def dies_with_an_intent(pipeline: Loading, table: str, messages: int) -> AggregatorProcess:
    """Sends messages of which the block is committed and not inserted: the owner dies in between, and is started."""
    owner = pipeline.owner(*STREAM)
    owner.arm_fault("after-commit", action="kill-aggregator", stream=pipeline.stream(*STREAM))
    pipeline.feed.send(table, messages)
    pipeline.wait("its death", lambda: not owner.alive)
    pipeline.heal()
    return owner


def ambiguous(owner: AggregatorProcess, table: str) -> bool:
    return [block.reason for block in owner.in_flight(table, "blocked")] == ["ProvenanceAmbiguous"]


def rows(stack: Stack, table: str) -> list[dict[str, tuple[int, int]]]:
    """Of each replica: number of rows and of different ones, by topic without its id."""
    found = []
    for server in stack.clickhouse.values():
        sql = f"SELECT _kafka_topic, count(), uniqExact(id) FROM {table} GROUP BY _kafka_topic"
        found.append({topic: (count, ids) for topic, count, ids in server.execute(sql)})
    return found


def audited(pipeline: Loading, table: str) -> list[audit.TableResult]:
    stack = pipeline.stack
    spec = audit.AuditSpec(
        clusters=(KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap),),
        topic=pipeline.pipeline.spec.topic,
        replicas=tuple(ClickHouse(host=s.host, port=s.port) for s in stack.clickhouse.values()),
        wait=30,
    )
    return [result for result in audit.run(spec).tables if result.table == table]


def test_an_old_intent_of_a_topic_that_was_created_again(stack: Stack, pipeline: Loading, names: Names) -> None:
    table = pipeline.feed.table(names.table, settings=UNCERTAIN)
    pipeline.feed.send(table, 5)
    pipeline.settle(table)
    (before,) = {topic for replica in rows(stack, table) for topic in replica}
    recreate(pipeline)
    pipeline.wait("the stream stopped", lambda: stops(pipeline) == {0: "TopicRecreated"}, timeout=60)
    accept(pipeline, 0, "TopicRecreated", "--yes")
    pipeline.wait("it consumes", lambda: stops(pipeline) == {})

    dies_with_an_intent(pipeline, table, 5)

    pipeline.wait("everything loaded", pipeline.pipeline.quiet)
    for replica in rows(stack, table):
        assert sorted(replica.values()) == [(15, 15), (15, 15)], (
            "as many of the topic before, which had the same offsets"
        )
    for result in audited(pipeline, table):
        assert result.exact
        assert result.stored == 15
        assert result.others == {f"a: {before}": 15}


def test_without_the_column_such_an_intent_is_blocked(stack: Stack, pipeline: Loading, names: Names) -> None:
    table = pipeline.feed.table(names.table, UNNAMED, provenance=False, settings=UNCERTAIN)
    pipeline.feed.send(table, 5)
    pipeline.wait("everything loaded", pipeline.pipeline.quiet)
    recreate(pipeline)
    pipeline.wait("the stream stopped", lambda: stops(pipeline) == {0: "TopicRecreated"}, timeout=60)
    accept(pipeline, 0, "TopicRecreated", "--yes")
    pipeline.wait("it consumes", lambda: stops(pipeline) == {})

    owner = dies_with_an_intent(pipeline, table, 5)

    pipeline.wait("the block to be blocked", lambda: bool(owner.in_flight(table, "blocked")))
    assert owner.logged("block.condemned", reason="ProvenanceAmbiguous")
    assert {server.execute(f"SELECT count() FROM {table}")[0][0] for server in stack.clickhouse.values()} == {15}


def test_an_owner_that_dies_between_the_first_commit_of_a_new_topic_and_its_marker(
    pipeline: Loading, names: Names
) -> None:
    """What the marker of the topic before states is no reason to stop, and what was accepted once is used up."""
    feed, (owner,) = pipeline.feed, pipeline.aggregators
    before, after = feed.table(f"{names.table}_before"), feed.table(f"{names.table}_after")
    for _ in range(3):
        feed.send(before, 5)
        pipeline.settle(before)
    recreate(pipeline)
    feed.send(after, 5)
    pipeline.wait("the stream stopped", lambda: stops(pipeline) == {0: "TopicRecreated"}, timeout=60)

    owner.arm_fault("after-commit", action="kill-aggregator", stream=pipeline.stream(*STREAM))
    accept(pipeline, 0, "TopicRecreated", "--yes")
    pipeline.wait("its death", lambda: not owner.alive)
    pipeline.heal()

    pipeline.settle(after)
    assert feed.differences(before, after) == []
    assert Decisions(feed.zookeeper).get(f"stream {pipeline.stream(*STREAM)}") is None


def test_an_old_intent_of_the_second_pipeline_of_a_table(
    stack: Stack, pipeline: Loading, other: Loading, names: Names
) -> None:
    table = pipeline.feed.table(names.table, settings=UNCERTAIN)
    other.feed.record(names.table)
    pipeline.feed.send(table, 5)
    pipeline.settle(table)

    dies_with_an_intent(other, table, 5)

    other.wait("everything loaded", other.pipeline.quiet)
    for replica in rows(stack, table):
        assert sorted(replica.values()) == [(15, 15), (15, 15)]
    for result in (*audited(pipeline, table), *audited(other, table)):
        assert result.exact
        assert list(result.others.values()) == [15]


def test_the_second_pipeline_of_a_table_without_the_column_is_refused(
    stack: Stack, pipeline: Loading, other: Loading, names: Names
) -> None:
    table = pipeline.feed.table(names.table, UNNAMED, provenance=False)
    other.feed.record(names.table)
    pipeline.feed.send(table, 5)
    pipeline.wait("everything loaded", pipeline.pipeline.quiet)

    other.feed.send(table, 5)

    owner = other.owner(*STREAM)
    other.wait("its block to be blocked", lambda: bool(owner.in_flight(table, "blocked")))
    assert owner.logged("block.condemned", reason="TableClaimed")
    shown = CliRunner().invoke(streams_command, ["claims", table, "--config", str(owner.folder / "aggregator.yaml")])
    assert shown.exit_code == 0
    assert f"a: {pipeline.pipeline.spec.topic}/" in shown.output
    assert other.pipeline.spec.topic not in shown.output, "what was refused claims nothing"
    pipeline.feed.send(table, 5)
    pipeline.wait("the first one flows", pipeline.pipeline.quiet)
    assert {server.execute(f"SELECT count() FROM {table}")[0][0] for server in stack.clickhouse.values()} == {30}

    # the table gets the column: nothing is refused any more, but the block is of the revision before, and rows of its
    # offsets are there that name no topic
    stack.clickhouse[1, 1].execute(f"ALTER TABLE {table} ADD COLUMN _kafka_topic String")
    other.wait("it is decided again", lambda: ambiguous(owner, table))
    (block,) = owner.in_flight(table, "blocked")
    config = str(owner.folder / "aggregator.yaml")
    decided = ["resolve", other.stream(*STREAM), block.table, "absent", "--config", config, "--yes"]
    assert CliRunner().invoke(streams_command, decided).exit_code == 0
    other.wait("everything loaded", other.pipeline.quiet)
    assert {server.execute(f"SELECT count() FROM {table}")[0][0] for server in stack.clickhouse.values()} == {45}
