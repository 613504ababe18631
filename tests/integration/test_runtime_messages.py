"""Messages that can never be rows, or not yet: exactly those are set aside, all others are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from e2e.stack import Stack
from e2e.stack.tables import create_replicated_table
from tests.integration.runtime_group import Group
from tests.integration.runtime_pipeline import Loading, eventually, healed, loading

pytestmark = pytest.mark.integration

STREAM = ("a", 0)


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(running_stack, tmp_path_factory.mktemp("messages"), "messages", aggregators=1) as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        yield found


def dead_letters(pipeline: Loading, cluster: str) -> dict[str, Mapping[str, bytes | None]]:
    """Headers and value (as header `value`) of every dead letter by the place of its message, `cluster/topic/0/7`,
    which is its key without the topic's id; none while there is no such topic."""
    topic = f"{pipeline.pipeline.spec.topic}.dead-letters"
    consumer = Consumer(
        {
            "bootstrap.servers": pipeline.stack.kafka[cluster].bootstrap,
            "group.id": "test-dead-letters",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    found: dict[str, Mapping[str, bytes | None]] = {}
    try:
        known = consumer.list_topics(timeout=60).topics.get(topic)
        for partition in known.partitions if known else ():
            begin, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
            consumer.assign([TopicPartition(topic, partition, begin)])
            seen = begin
            while seen < end and (message := consumer.poll(10)) is not None:
                assert message.error() is None
                key: Any = message.key()
                headers: Any = message.headers()
                place, _, topic_id = key.decode().partition("@")
                assert topic_id, "of which topic of this name it is"
                found[place] = {**dict(headers), "value": message.value()}
                seen = (message.offset() or 0) + 1
    finally:
        consumer.close()
    return found


def test_each_bad_message_alone_becomes_a_dead_letter(pipeline: Loading) -> None:
    feed = pipeline.feed
    table = feed.table("bad", "id UInt64, text String, small UInt8")
    good, headers = feed.encode(table, [{"id": 1}, {"id": 2}])
    wire_type = b"\x0a\x03\x0a\x01x"  # a row whose first field, an integer, was sent as a string
    out_of_range = b"\x0a\x03\x18\xac\x02"  # a row with small = 300
    without_schema = {"table": table, "format": "rows"}
    bad = {
        "NoTableHeader": (good, {"schema": "1"}),
        "Undecodable": (b"\x0a\xff", headers),
        "UnknownField": (wire_type, headers),
        "OutOfRange": (out_of_range, headers),
        "NoSchemaHeader": (good, without_schema),
        "UnsupportedFormat": (good, {**headers, "format": "csv"}),
        "NullValue": (None, headers),
    }
    offsets = {}
    for reason, (value, its_headers) in bad.items():
        feed.send(table, 2, to=[STREAM])
        offsets[reason] = feed.raw(value, its_headers, to=STREAM)
    feed.send(table, 2)
    pipeline.settle(table)
    letters = dead_letters(pipeline, STREAM[0])
    stream = pipeline.stream(*STREAM)
    assert {key: letter["blockhouse.reason"] for key, letter in letters.items()} == {
        f"{stream}/{offset}": reason.encode() for reason, offset in offsets.items()
    }
    for reason, (value, its_headers) in bad.items():
        letter = letters[f"{stream}/{offsets[reason]}"]
        assert letter["value"] == value
        assert letter["blockhouse.stream"] == stream.encode()
        assert letter["blockhouse.table"] == its_headers.get("table", "").encode()
    (aggregator,) = pipeline.aggregators
    assert aggregator.metric("blockhouse_dead_letters_total", stream=stream) == len(bad)
    # what was refused is named in the letter, in the log and on the status page
    detail = "column small (UInt8), row 1: 300"
    assert letters[f"{stream}/{offsets['OutOfRange']}"]["blockhouse.detail"] == detail.encode()
    assert aggregator.logged("messages.dead_lettered", table=table, reason="OutOfRange", detail=detail)
    (shown,) = (each for each in aggregator.streams() if each.stream == stream)
    assert {each.table: each.messages for each in shown.letters} == {table: len(bad) - 1, "": 1}


def test_a_table_that_is_created_later_drains_by_itself(pipeline: Loading) -> None:
    feed, (aggregator,) = pipeline.feed, pipeline.aggregators
    beside, model = feed.table("known_beside"), feed.table("later_model")
    value, headers = feed.encode(model, [{"id": 7, "text": "early"}])
    for stream in feed.streams:
        feed.raw(value, {**headers, "table": "default.later"}, to=stream, rows=1)
    feed.send(beside, 10)
    name = pipeline.stream(*STREAM)
    pipeline.wait(
        "the unknown table to lag",
        lambda: list(aggregator.lagging(name)) == ["default.later"],
    )
    feed.wait_exact(beside)
    held = {name: table.held for name, table in aggregator.tables().items()}
    assert held["default.later"] == "UnknownTable"
    assert eventually(lambda: aggregator.metric("blockhouse_lagging_tables", stream=name) == 1)

    create_replicated_table(pipeline.stack, "later", "id UInt64, text String", order_by="id")
    pipeline.settle("default.later", beside)


def test_a_message_of_a_coming_schema_revision_waits_for_it(pipeline: Loading) -> None:
    feed, (aggregator,) = pipeline.feed, pipeline.aggregators
    table = feed.table("evolving")
    value, headers = feed.encode(table, [{"id": 1, "text": "a"}])
    feed.send(table, 5)
    early = {**headers, "schema": "2"}
    feed.raw(value, early, to=STREAM, rows=1)
    feed.send(table, 5, to=[STREAM])  # behind it: order within a table is kept
    name = pipeline.stream(*STREAM)
    pipeline.wait("the table to lag", lambda: [t.pending for t in aggregator.lagging(name).values()] == [6])

    pipeline.stack.clickhouse[1, 1].execute("ALTER TABLE evolving ADD COLUMN extra UInt8 AFTER id")
    pipeline.settle(table)


def test_unknown_tables_become_dead_letters_where_that_is_requested(pipeline: Loading) -> None:
    feed, (aggregator,) = pipeline.feed, pipeline.aggregators
    table = feed.table("strict_beside")
    value, headers = feed.encode(table, [{"id": 1}])
    aggregator.stop(grace=20)
    usual, aggregator.config = aggregator.config, {**aggregator.config, "unknownTable": "deadLetter"}
    try:
        aggregator.start()
        offset = feed.raw(value, {**headers, "table": "default.absent"}, to=STREAM)
        feed.send(table, 5)
        pipeline.settle(table)
        key = f"{pipeline.stream(*STREAM)}/{offset}"
        letter = dead_letters(pipeline, STREAM[0])[key]
        assert (letter["blockhouse.reason"], letter["blockhouse.table"]) == (b"UnknownTable", b"default.absent")
    finally:
        aggregator.stop(grace=20)
        aggregator.config = usual


def test_what_waits_in_vain_is_set_aside_before_retention_takes_it(pipeline: Loading) -> None:
    """A table that is never created, and a revision that is never recorded, which stops the rows behind it."""
    feed, (aggregator,) = pipeline.feed, pipeline.aggregators
    table, group = feed.table("waited_beside"), Group(pipeline.pipeline)
    value, headers = feed.encode(table, [{"id": 1}])
    unknown = feed.raw(value, {**headers, "table": "default.never"}, to=STREAM)
    wrong = feed.raw(value, {**headers, "schema": "7"}, to=STREAM)
    feed.send(table, 5, to=[STREAM])
    name = pipeline.stream(*STREAM)
    pipeline.wait(
        "both to lag",
        lambda: aggregator.lagging(name).keys() == {"default.never", table},
    )
    keys = {f"{name}/{unknown}": b"UnknownTable", f"{name}/{wrong}": b"UnknownRevision"}
    assert not keys.keys() & dead_letters(pipeline, STREAM[0]).keys()
    group.set_topic("retention.ms", "40000")
    try:
        pipeline.wait("their burial", lambda: keys.keys() <= dead_letters(pipeline, STREAM[0]).keys(), 120)
    finally:
        group.set_topic("retention.ms", "604800000")
    letters = dead_letters(pipeline, STREAM[0])
    assert {key: letters[key]["blockhouse.reason"] for key in keys} == keys
    assert aggregator.logged("alarm", reason="RetentionNear", table="default.never")
    pipeline.settle(table)
