"""Messages that harm where nothing is decoded yet: exactly they are set aside, their stream and its neighbours flow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from e2e.stack import Stack
from tests.integration.runtime_pipeline import Loading, healed, loading, neighbour_flows
from tests.integration.test_runtime_messages import dead_letters

pytestmark = pytest.mark.integration

STREAM = ("a", 0)


class RawName(str):
    """A header name of any bytes, for a client that encodes names itself."""

    __slots__ = ("raw",)

    def __new__(cls, raw: bytes) -> RawName:
        made = super().__new__(cls, raw.decode("latin-1"))
        made.raw = raw
        return made

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return self.raw


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(running_stack, tmp_path_factory.mktemp("poison"), "poison", aggregators=1) as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        yield found


def reasons(pipeline: Loading) -> dict[str, bytes | None]:
    return {key: letter["blockhouse.reason"] for key, letter in dead_letters(pipeline, STREAM[0]).items()}


def send_raw_header(pipeline: Loading, name: bytes, value: bytes, headers: dict[str, str]) -> int:
    """One message with one more header, whose name is `name`, through a client that lets names be any bytes."""
    producer = KafkaProducer(bootstrap_servers=pipeline.stack.kafka[STREAM[0]].bootstrap)
    try:
        more: list[tuple[Any, bytes]] = [(key, text.encode()) for key, text in headers.items()]
        sent = producer.send(
            pipeline.pipeline.spec.topic,
            value=value,
            partition=STREAM[1],
            headers=[*more, (RawName(name), b"1")],
        )
        return int(sent.get(30).offset)
    finally:
        producer.close()


@pytest.mark.parametrize("name", [b"x-caf\xe9", b"\xff", b"\xe9x"], ids=["latin1", "ff", "inside"])
def test_a_header_name_that_is_not_utf8_is_a_dead_letter_of_its_own(pipeline: Loading, name: bytes) -> None:
    feed = pipeline.feed
    table = feed.table(f"named_{name.hex()}")
    feed.send(table, 3)
    value, headers = feed.encode(table, [{"id": 1, "text": "good but for its header"}])
    offset = send_raw_header(pipeline, name, value, headers)
    feed.send(table, 5)
    pipeline.settle(table)
    assert reasons(pipeline)[f"{pipeline.stream(*STREAM)}/{offset}"] == b"BadHeaders"


def send_compressed(pipeline: Loading, values: list[bytes], headers: dict[str, str]) -> list[int]:
    """As one producer that compresses: what is small in the log may be large in memory."""
    producer = Producer(
        {
            "bootstrap.servers": pipeline.stack.kafka[STREAM[0]].bootstrap,
            "compression.type": "zstd",
            "message.max.bytes": 64 << 20,
            "linger.ms": 50,
            "log_level": 0,
        }
    )
    offsets: list[int] = []

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for value in values:
        producer.produce(
            pipeline.pipeline.spec.topic, value=value, partition=STREAM[1], headers=headers, on_delivery=delivered
        )
    assert producer.flush(60) == 0
    return sorted(offsets)


def test_a_bad_message_that_is_large_only_in_memory_is_kept_whole(pipeline: Loading) -> None:
    feed = pipeline.feed
    table = feed.table("large_bad")
    value = b"\x0a\xff" + b"abcdefgh" * 400_000  # 3.2 MB, some hundred bytes in the log
    _, headers = feed.encode(table, [{"id": 1}])
    (offset,) = send_compressed(pipeline, [value], headers)
    feed.send(table, 3)
    pipeline.settle(table)
    letter = dead_letters(pipeline, STREAM[0])[f"{pipeline.stream(*STREAM)}/{offset}"]
    assert letter["blockhouse.reason"] == b"Undecodable"
    assert letter["value"] == value


def test_letters_that_their_topic_has_no_room_for_are_written_without_what_does_not_fit(pipeline: Loading) -> None:
    """The topic's limit is far below its source's: a batch of small letters does not fit, nor does a large one."""
    feed = pipeline.feed
    table = feed.table("no_room")
    _, headers = feed.encode(table, [{"id": 1}])
    first = feed.raw(b"\x0a\xff", headers, to=STREAM)
    stream = pipeline.stream(*STREAM)
    pipeline.wait("the first letter, and so the topic", lambda: f"{stream}/{first}" in reasons(pipeline))
    topic = f"{pipeline.pipeline.spec.topic}.dead-letters"
    pipeline.set_topic_config(topic, {"max.message.bytes": "2000"}, cluster=STREAM[0])
    noise = Random(7)
    small = [b"\x0a\xff" + noise.randbytes(300) for _ in range(50)]
    large = b"\x0a\xff" + noise.randbytes(50_000)
    offsets = send_compressed(pipeline, [*small, large], headers)
    feed.send(table, 3)
    pipeline.settle(table)
    letters = dead_letters(pipeline, STREAM[0])
    values = [letters[f"{stream}/{offset}"]["value"] for offset in offsets]
    assert values[:50] == small
    assert values[50] is None
    assert letters[f"{stream}/{offsets[50]}"]["blockhouse.omitted"] == b"value 50002"


def test_a_dead_letter_topic_that_was_deleted_is_created_again(pipeline: Loading) -> None:
    feed, stream = pipeline.feed, pipeline.stream(*STREAM)
    table = feed.table("letters_gone")
    _, headers = feed.encode(table, [{"id": 1}])
    first = feed.raw(b"\x0a\xff", headers, to=STREAM)
    pipeline.wait("the first letter, and so the topic", lambda: f"{stream}/{first}" in reasons(pipeline))
    admin = AdminClient({"bootstrap.servers": pipeline.stack.kafka[STREAM[0]].bootstrap, "log_level": 0})
    topic = f"{pipeline.pipeline.spec.topic}.dead-letters"
    admin.delete_topics([topic], operation_timeout=30)[topic].result(60)
    second = feed.raw(b"\x0a\xff", headers, to=STREAM)
    feed.send(table, 3)
    pipeline.settle(table)
    assert f"{stream}/{second}" in reasons(pipeline)


def test_a_wide_table_whose_messages_name_one_column_loads_with_default_limits(pipeline: Loading) -> None:
    """1 MB of messages would be one block of 300 MB, which no server takes: blocks end by what they are encoded to."""
    feed = pipeline.feed
    columns = ", ".join(["id UInt64", *(f"c{i} UInt64" for i in range(300))])
    table = feed.table("wide", columns)
    value, headers = feed.encode(table, [{"id": number} for number in range(500)])
    (aggregator,) = pipeline.aggregators
    before = aggregator.metric("blockhouse_blocks_total") or 0
    offsets = send_compressed(pipeline, [value] * 250, headers)
    for offset in offsets:
        feed.expect(table, (*STREAM, offset), 500)
    pipeline.settle(table)
    assert (aggregator.metric("blockhouse_blocks_total") or 0) - before >= 4


def test_an_aggregator_whose_spark_lost_its_scratch_folder_ends_and_the_next_start_loads(
    running_stack: Stack, tmp_path: Path
) -> None:
    """What cleans /tmp does it after days. Every lease failed without an end before, and the process stayed ready."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    settings = {"spark": {"lease": "3s", "conf": {"spark.local.dir": str(scratch)}}}
    with loading(running_stack, tmp_path, "scratch", aggregators=1, clusters=1, settings=settings) as found:
        table = found.feed.table("scratched")
        found.feed.send(table, 3)
        found.settle(table)
        (aggregator,) = found.aggregators
        for folder in scratch.iterdir():
            rmtree(folder)
        found.feed.send(table, 3)
        found.wait("the aggregator to end", lambda: not aggregator.alive)
        assert aggregator.exit_code == 70
        assert aggregator.logged("spark.broken")
        found.heal()
        found.settle(table)


def test_a_small_message_whose_rows_no_block_can_hold_is_a_dead_letter_of_its_own(pipeline: Loading) -> None:
    """A list of wide elements that the message leaves empty: 0.8 MB in the log, 270 MB in a block."""
    feed = pipeline.feed
    table = feed.table("lists", "id UInt64, list Array(FixedString(1000))")
    headers = {"table": table, "format": "json"}
    feed.raw(b'{"id": 1, "list": ["a"]}', headers, to=STREAM)
    feed.raw(b'{"id": 2, "list": [' + b'"",' * 270_000 + b'""]}', headers, to=STREAM)
    offset = feed.raw(b'{"id": 3, "list": ["b"]}', headers, to=STREAM) - 1
    neighbour_flows(pipeline, feed.table("beside_lists"), to=("a", 1))
    pipeline.wait("everything loaded", pipeline.pipeline.quiet)
    assert reasons(pipeline)[f"{pipeline.stream(*STREAM)}/{offset}"] == b"TooLarge"
    server = pipeline.stack.clickhouse[1, 1]
    assert server.execute(f"SELECT id, length(list) FROM {table} ORDER BY id") == [(1, 1), (3, 1)]
