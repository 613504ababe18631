"""Dead letters on real brokers: listed once however often written, sent again exactly once, even if a process dies."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent
from blockhouse.streams import StreamId
from blockhouse_aggregator.dlq.cli import app
from blockhouse_aggregator.dlq.letters import Letter, Selection
from blockhouse_aggregator.dlq.log import Resender, read
from blockhouse_aggregator.kafka.dead_letters import DeadLetter, DeadLetterWriter
from e2e.stack import Stack
from tests.integration.conftest import Names, TableFactory, TopicFactory

pytestmark = pytest.mark.integration

PARTITION = 2


class Dead:
    """A topic with its dead letters in cluster a."""

    def __init__(self, stack: Stack, topic: str, folder: Path) -> None:
        self.topic, self.letters = topic, f"{topic}.dead-letters"
        self.cluster = KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)
        self.writer = DeadLetterWriter(self.cluster, self.letters)
        self.writer.ensure_topic(topic)
        self.config = folder / "aggregator.yaml"
        settings = {
            "pipeline": "p",
            "shard": "01",
            "replica": "r1",
            "kafka": {
                "topic": topic,
                "group": "g",
                "clusters": [{"name": "a", "bootstrapServers": self.cluster.bootstrap_servers}],
            },
            "zookeeper": {"servers": stack.zookeeper.connect},
            "clickhouse": {"host": stack.clickhouse[1, 1].host, "port": stack.clickhouse[1, 1].port},
        }
        self.config.write_text(yaml.safe_dump(settings))

    def write(self, *offsets: int, reason: str = "OutOfRange", table: str = "db.t") -> None:
        stream = StreamId("a", self.topic, PARTITION)
        headers = (("table", table.encode()), ("schema", b"1"))
        self.writer.write(
            [DeadLetter(stream, o, b"key", b"value %d" % o, headers, 1_700_000_000_000, reason, table) for o in offsets]
        )

    def key(self, offset: int) -> str:
        return f"a/{self.topic}/{PARTITION}/{offset}"

    def run(self, *arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, [*arguments, "--config", str(self.config)])
        assert result.exit_code == code, result.output
        assert result.output or "list" in arguments, "nothing was printed"
        return result.output

    def listed(self, *arguments: str) -> dict[str, str]:
        lines = [json.loads(line) for line in self.run("list", "--json", *arguments).splitlines()]
        return {line["key"]: line["replayed"] for line in lines}

    def waiting(self) -> list[Letter]:
        return read(self.cluster, self.letters, Selection(), values=True).result()

    def time_of_a_record(self) -> float:
        """The Unix time, by which brokers delete, of any record of the dead-letter topic."""
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "t", "log_level": 0})
        try:
            partitions = consumer.list_topics(self.letters, timeout=30).topics[self.letters].partitions
            consumer.assign([TopicPartition(self.letters, partition, 0) for partition in partitions])
            message = consumer.poll(60)
            assert message is not None
            return float(message.timestamp()[1]) / 1000
        finally:
            consumer.close()

    def sent_again(self) -> list[tuple[bytes, dict[str, Any]]]:
        """Value and headers of all committed messages of the partition."""
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "t", "log_level": 0})
        partition = TopicPartition(self.topic, PARTITION, 0)
        found: list[tuple[bytes, dict[str, Any]]] = []
        try:
            consumer.assign([partition])
            _, end = consumer.get_watermark_offsets(partition, timeout=60)
            while consumer.position([partition])[0].offset < end and (message := consumer.poll(10)) is not None:
                found.append((message.value() or b"", dict(message.headers() or ())))
        finally:
            consumer.close()
        return found


@pytest.fixture
def dead(stack: Stack, topic: TopicFactory, names: Names, tmp_path: Path) -> Dead:
    return Dead(stack, topic(), tmp_path)


def test_letters_are_listed_once_and_shown_as_they_were_sent(dead: Dead, tmp_path: Path) -> None:
    dead.write(5, 6)
    dead.write(6, 7, reason="UnknownTable", table="db.late")  # 6 was written before: delivery is at least once
    assert dead.listed() == {dead.key(5): "", dead.key(6): "", dead.key(7): ""}
    assert list(dead.listed("--table", "db.late", "--reason", "UnknownTable")) == [dead.key(6), dead.key(7)]
    assert "3 dead letters" in dead.run("list")
    shown = json.loads(dead.run("show", dead.key(5), "--output", str(tmp_path / "value")))
    assert (shown["message_key"], shown["headers"]) == ("key", {"table": "db.t", "schema": "1"})
    assert (tmp_path / "value").read_bytes() == b"value 5"
    dead.run("show", dead.key(99), code=1)


def test_nothing_is_sent_without_yes_nor_without_a_choice(dead: Dead) -> None:
    dead.write(5)
    assert "add --yes" in dead.run("replay", dead.key(5))
    dead.run("replay", "--yes", code=2)
    dead.run("replay", dead.key(4), "--yes", code=1)
    assert dead.sent_again() == []
    assert dead.listed() == {dead.key(5): ""}


def test_what_is_sent_again_keeps_all_its_parts_names_its_origin_and_is_never_sent_twice(dead: Dead) -> None:
    dead.write(5, 6, 7)
    dead.write(5)
    dead.run("replay", dead.key(5), dead.key(7), "--yes")
    dead.run("replay", "--table", "db.t", "--yes")
    dead.run("replay", "--table", "db.t", "--yes")
    messages = dead.sent_again()
    assert sorted(value for value, _ in messages) == [b"value 5", b"value 6", b"value 7"]
    for value, headers in messages:
        origin = dead.key(int(value.split()[1])).encode()
        assert headers == {"table": b"db.t", "schema": b"1", "blockhouse.origin": origin}
    assert dead.listed() == {}
    places = dead.listed("--all")
    assert set(places) == {dead.key(5), dead.key(6), dead.key(7)}
    assert len(set(places.values())) == 3
    assert all(place.startswith(f"a/{dead.topic}/{PARTITION}/") for place in places.values())


def test_a_sender_that_dies_before_its_commit_has_sent_nothing(dead: Dead, monkeypatch: pytest.MonkeyPatch) -> None:
    dead.write(5)
    dying = Resender(dead.cluster, dead.letters)
    dying.start()

    def die() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dying, "_commit", die)
    with pytest.raises(KeyboardInterrupt):
        dying.send(dead.waiting())
    dead.run("replay", dead.key(5), "--yes")  # the next one undoes what was begun
    assert [value for value, _ in dead.sent_again()] == [b"value 5"]


def test_of_two_senders_at_once_the_later_fences_the_earlier(dead: Dead) -> None:
    dead.write(5)
    earlier, later = Resender(dead.cluster, dead.letters), Resender(dead.cluster, dead.letters)
    earlier.start()
    letters = dead.waiting()
    later.start()
    later.send(letters)
    with pytest.raises(Permanent, match="another process does so now"):
        earlier.send(letters)
    assert [value for value, _ in dead.sent_again()] == [b"value 5"]
    assert dead.waiting() == []


def test_letters_of_old_messages_are_kept_as_long_as_any_other(dead: Dead) -> None:
    """Retention goes by the records' time: that of a message of years ago would be over at once."""
    dead.write(5)
    (letter,) = dead.waiting()
    assert letter.timestamp_ms == 1_700_000_000_000
    (listed,) = map(json.loads, dead.run("list", "--json").splitlines())
    assert listed["time"].startswith("2023-11-14")
    assert time.time() - dead.time_of_a_record() < 600


def test_a_pipeline_without_a_dead_letter_topic_has_no_letters(dead: Dead) -> None:
    assert read(dead.cluster, "no-such-topic", Selection()).result() == []


def test_a_letter_whose_rows_are_stored_is_loaded_after_all(dead: Dead, stack: Stack, table: TableFactory) -> None:
    name = table("id UInt64", order_by="id")
    dead.write(5, 6, table=f"default.{name}")
    rows = f"SELECT 1, 'a', {PARTITION}, 5, 0"
    columns = "id, _kafka_cluster, _kafka_partition, _kafka_offset, _kafka_row"
    stack.clickhouse[1, 1].execute(f"INSERT INTO default.{name} ({columns}) {rows}")

    assert set(dead.listed()) == {dead.key(6)}
    assert set(dead.listed("--all")) == {dead.key(5), dead.key(6)}
    output = dead.run("replay", "--table", f"default.{name}", "--yes")

    assert "1 were loaded after all" in output
    assert [value for value, _ in dead.sent_again()] == [b"value 6"]
