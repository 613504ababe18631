"""`blockhouse produce`, `Producer` and `blockhouse audit` on real servers, the test in the aggregator's place."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from blockhouse.config.endpoints import ZooKeeper
from blockhouse.producer import Delivery, Producer
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit import AuditImpossible, run
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.kafka.dead_letters import DeadLetter, DeadLetterWriter
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.audit_pipeline import Pipeline

pytestmark = pytest.mark.integration


@pytest.fixture
def pipeline(stack: Stack, topic: Any, table: Any, names: Any, tmp_path: Path) -> Pipeline:
    made = Pipeline(stack, topic(partitions=2), table(), tmp_path / "aggregator.yaml", tmp_path / "sent.jsonl")
    zookeeper = {"servers": f"127.0.0.1:{stack.zookeeper.port}", "root": names.zookeeper_root}
    made.file.write_text(
        yaml.safe_dump(
            {
                "pipeline": "test",
                "shard": "01",
                "replica": "r1",
                "kafka": {
                    "topic": made.topic,
                    "group": names.group,
                    "clusters": [{"name": c.name, "bootstrapServers": c.bootstrap_servers} for c in made.clusters],
                },
                "clickhouse": {"host": made.replicas[0].host, "port": made.replicas[0].port},
                "zookeeper": zookeeper,
            }
        )
    )
    columns = [ServerColumn(name="id", type="UInt64"), ServerColumn(name="text", type="String")]
    with Session(ZooKeeper(servers=zookeeper["servers"], root=zookeeper["root"])) as session:
        store = SchemaStore(session)
        store.ensure_id(f"default.{made.table}")
        store.append(f"default.{made.table}", 0, first_revision(columns))
    return made


def test_what_was_produced_and_stored_once_is_exact(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    sent = pipeline.produce("--messages", "300", "--rows-per-message", "3")
    pipeline.store(sent)

    assert pipeline.audit("--wait", "20", "--json") == 0

    report = json.loads(capsys.readouterr().out)
    assert report["exact"]
    assert report["manifest"] == {"messages": 300, "lost": 0, "different": 0, "exact": True}
    assert [(t["messages"], t["rows"], t["stored"]) for t in report["tables"]] == [(300, 900, 900)] * 2
    assert {(m["cluster"], m["partition"]) for m in sent} == {("a", 0), ("a", 1), ("b", 0), ("b", 1)}


def test_lost_doubled_and_foreign_rows_are_found_on_every_replica(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third, *others = pipeline.produce("--messages", "40", "--rows-per-message", "2")
    foreign = {**first, "offset": 1_000_000}
    pipeline.promise()
    pipeline.store([*others, {**second, "row_numbers": [0]}, {**third, "row_numbers": [0, 0, 1]}, foreign])

    assert pipeline.audit("--wait", "3") == 1

    shown = capsys.readouterr().out
    assert "NOT EXACT" in shown
    report = run(replace(pipeline.spec, wait=0))
    assert {(t.missing, t.duplicates, t.unexpected) for t in report.tables} == {(3, 1, 2)}
    stream = StreamId(first["cluster"], pipeline.topic, first["partition"])
    assert f"{stream} offset {first['offset']}: 2 rows expected, 0 stored" in shown


def test_rows_that_no_commit_has_promised_are_not_called_lost(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.store(pipeline.produce("--messages", "20"))
    assert pipeline.audit("--wait", "20") == 0
    pipeline.promise()
    later = pipeline.produce("--messages", "4", "--rows-per-message", "2", "--seed", "5")
    capsys.readouterr()

    assert pipeline.audit() == 1
    assert "NOT EXACT YET" in capsys.readouterr().out
    assert pipeline.audit("--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert [(t["missing"], t["waiting"]) for t in report["tables"]] == [(8, 8)] * 2
    assert {offender["waits"] for table in report["tables"] for offender in table["offenders"]} == {True}

    pipeline.promise()
    assert pipeline.audit() == 1
    shown = capsys.readouterr().out
    assert "not loaded yet" not in shown
    assert "NOT EXACT\n" in shown
    pipeline.store(later)
    assert pipeline.audit("--wait", "20") == 0


def test_rows_that_were_deleted_on_purpose_are_not_called_lost(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = pipeline.produce("--messages", "10", "--rows-per-message", "2")
    pipeline.store([first, *others])
    with Replica(pipeline.replicas[0]) as replica:
        where = f"_kafka_cluster = '{first['cluster']}' AND _kafka_partition = {first['partition']}"
        replica.query(f"ALTER TABLE {pipeline.table} DELETE WHERE {where} AND _kafka_offset = {first['offset']}")
        there = f"SELECT count() FROM {pipeline.table} WHERE {where} AND _kafka_offset = {first['offset']}"
        assert wait_until(lambda: replica.query(there) == [(0,)], timeout=60)

    assert pipeline.audit("--wait", "3") == 3

    shown = capsys.readouterr().out
    assert "missing rows cannot be judged: rows were deleted" in shown
    assert "CANNOT BE JUDGED" in shown
    assert {table.missing for table in run(pipeline.spec).tables} == {2}


def test_bad_messages_count_as_missing_until_they_are_dead_lettered(pipeline: Pipeline) -> None:
    shares = ("no-table", "unknown-table", "undecodable", "wrong-type")
    sent = pipeline.produce("--messages", "100", "--rows-per-message", "2", *(f"--bad={k}=0.1" for k in shares))
    bad = [message for message in sent if message["kind"] != "good"]
    assert {message["kind"] for message in bad} == set(shares)
    pipeline.store(message for message in sent if message["kind"] == "good")
    before = run(replace(pipeline.spec, wait=3))
    assert not before.exact
    assert sum(t.duplicates + t.unexpected for t in before.tables) == 0

    for _ in range(2):  # a replay writes its dead letters again
        _dead_letter(pipeline, bad)

    report = run(pipeline.spec)
    assert report.exact
    assert sum(t.dead_letters for t in report.tables) == 2 * len(bad)


def test_messages_that_the_cluster_lost_are_found_by_the_manifest(pipeline: Pipeline) -> None:
    sent = pipeline.produce("--messages", "20")
    pipeline.store(sent)
    with pipeline.manifest.open("a") as lines:
        lines.write(json.dumps({**sent[0], "offset": 5_000}) + "\n")

    assert pipeline.audit("--wait", "3") == 1
    assert run(pipeline.spec).exact


def test_what_does_not_answer_is_named_and_neither_exact_nor_wrong(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pipeline.audit() == 3  # there is no message yet
    pipeline.store(pipeline.produce("--messages", "5"))
    assert pipeline.audit("--wait", "20") == 0
    silent = pipeline.stack.servers["clickhouse-1-2"]
    silent.kill()
    capsys.readouterr()

    assert pipeline.audit() == 3
    shown = capsys.readouterr()
    assert f"NOT COMPARED: replica 127.0.0.1:{pipeline.replicas[1].port}" in shown.err
    assert "exact: every row" not in shown.out
    assert "exact in what was compared (Kafka cluster a, b; replica " in shown.out
    with pytest.raises(AuditImpossible, match="cannot connect"):
        run(replace(pipeline.spec, wait=0))

    pipeline.produce("--messages", "5")
    assert pipeline.audit() == 1, "what is wrong where something answers is wrong"


def test_a_dead_kafka_cluster_hides_no_row_of_the_other(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.store(pipeline.produce("--messages", "20"))
    assert pipeline.audit("--wait", "20") == 0
    pipeline.stack.kafka["b"].brokers[0].kill()
    capsys.readouterr()

    manifest = ("--manifest", str(pipeline.manifest))
    assert pipeline.run("audit", "--json", *manifest) == 3
    shown = capsys.readouterr()
    assert "NOT COMPARED: Kafka cluster b" in shown.err
    report = json.loads(shown.out)
    assert (report["exact"], report["undecided"], report["clusters"]) == (False, True, ["a"])
    assert list(report["not_compared"]) == ["Kafka cluster b"]
    assert len(report["replicas"]) == 2, "without --replica all of the shard are compared"
    assert {result["messages"] > 0 for result in report["tables"]} == {True}


def test_the_same_seed_sends_the_same_messages(pipeline: Pipeline) -> None:
    what = [
        [
            (m["cluster"], m["partition"], m["rows"], m["kind"])
            for m in pipeline.produce("--messages", "50", "--seed", "3")
        ]
        for _ in range(2)
    ]

    assert sorted(what[0]) == sorted(what[1])


def test_a_producer_goes_to_the_other_cluster_while_the_local_one_is_unavailable(pipeline: Pipeline) -> None:
    delivered: list[Delivery] = []
    table = f"default.{pipeline.table}"

    with Session(ZooKeeper(**_zookeeper(pipeline))) as session:
        producer = Producer(
            pipeline.clusters,
            SchemaStore(session),
            "b",
            topic=pipeline.topic,
            delivery_timeout=3,
            on_delivery=delivered.append,
        )
        producer.send(table, [{"id": 1, "text": "local"}], tag=1)
        producer.flush()
        pipeline.stack.servers["kafka-b-1"].kill()
        for tag in (2, 3):
            producer.send(table, [{"id": tag}], tag=tag)
        producer.flush(30)

    assert sorted((d.tag, d.cluster, d.error) for d in delivered) == [(1, "b", None), (2, "a", None), (3, "a", None)]


def _dead_letter(pipeline: Pipeline, messages: Iterable[dict[str, Any]]) -> None:
    for cluster in pipeline.clusters:
        writer = DeadLetterWriter(cluster, f"{pipeline.topic}.dead-letters")
        writer.ensure_topic(pipeline.topic)
        writer.write(
            [
                DeadLetter(StreamId(m["cluster"], m["topic"], m["partition"]), m["offset"], None, b"", (), 0, m["kind"])
                for m in messages
                if m["cluster"] == cluster.name
            ]
        )
        writer.close()


def _zookeeper(pipeline: Pipeline) -> dict[str, str]:
    settings: dict[str, str] = yaml.safe_load(pipeline.file.read_text())["zookeeper"]
    return settings
