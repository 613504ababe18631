"""`blockhouse produce`, `Producer` and `blockhouse audit` on real servers, the test in the aggregator's place."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from blockhouse import cli
from blockhouse.config.endpoints import ClickHouse, KafkaCluster, ZooKeeper
from blockhouse.producer import Delivery, Producer
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit import AuditImpossible, AuditSpec, run
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.kafka.dead_letters import DeadLetter, DeadLetterWriter
from e2e.stack import Stack
from e2e.stack.process import wait_until

pytestmark = pytest.mark.integration


@dataclass
class Pipeline:
    """One topic in both clusters, one table on both replicas, and a configuration file that names them."""

    stack: Stack
    topic: str
    table: str
    file: Path
    manifest: Path

    @property
    def clusters(self) -> tuple[KafkaCluster, ...]:
        return tuple(KafkaCluster(name=n, bootstrap_servers=c.bootstrap) for n, c in self.stack.kafka.items())

    @property
    def replicas(self) -> tuple[ClickHouse, ...]:
        return tuple(ClickHouse(host=s.host, port=s.port) for s in self.stack.clickhouse.values())

    @property
    def spec(self) -> AuditSpec:
        return AuditSpec(
            self.clusters, self.topic, self.replicas, dead_letter_topic=f"{self.topic}.dead-letters", wait=20
        )

    def run(self, *arguments: str) -> int:
        with pytest.raises(SystemExit) as exit_:
            cli.main([arguments[0], "--config", str(self.file), *arguments[1:]])
        assert isinstance(exit_.value.code, int)
        return exit_.value.code

    def audit(self, *arguments: str) -> int:
        replicas = [f"--replica={r.host}:{r.port}" for r in self.replicas]
        return self.run("audit", *replicas, "--manifest", str(self.manifest), *arguments)

    def produce(self, *arguments: str) -> list[dict[str, Any]]:
        """Returns the manifest."""
        assert self.run("produce", "--manifest", str(self.manifest), *arguments) == 0
        return [json.loads(line) for line in self.manifest.read_text().splitlines()]

    def store(self, messages: Iterable[dict[str, Any]]) -> None:
        """Insert the rows of these messages, as far as provenance goes, into the first replica."""
        values = ", ".join(
            f"('{m['cluster']}', {m['partition']}, {m['offset']}, {row})"
            for m in messages
            for row in m.get("row_numbers", range(m["rows"]))
        )
        names = "_kafka_cluster, _kafka_partition, _kafka_offset, _kafka_row"
        with Replica(self.replicas[0]) as replica:
            replica.query(
                f"INSERT INTO {self.table} ({names}) SELECT r.1, toUInt32(r.2), toUInt64(r.3), toUInt32(r.4)"
                f" FROM (SELECT arrayJoin([{values}]) AS r)"
            )


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
    pipeline.store([*others, {**second, "row_numbers": [0]}, {**third, "row_numbers": [0, 0, 1]}, foreign])

    assert pipeline.audit("--wait", "3") == 1

    shown = capsys.readouterr().out
    assert "NOT EXACT" in shown
    report = run(replace(pipeline.spec, wait=0))
    assert {(t.missing, t.duplicates, t.unexpected) for t in report.tables} == {(3, 1, 2)}
    stream = StreamId(first["cluster"], pipeline.topic, first["partition"])
    assert f"{stream} offset {first['offset']}: 2 rows expected, 0 stored" in shown


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
    assert "exact: every row" in shown.out
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
    assert report["exact"]
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
