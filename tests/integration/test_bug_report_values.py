"""Values that others met who load Kafka into ClickHouse: stored exactly or set aside alone, never a near value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from e2e.stack import Stack
from tests.integration.runtime_pipeline import Loading, healed, loading, neighbour_flows
from tests.integration.test_bug_reports import STREAM, json_headers
from tests.integration.test_runtime_poison import reasons

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(running_stack, tmp_path_factory.mktemp("values"), "values", aggregators=1, clusters=1) as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        yield found


def send_json(pipeline: Loading, table: str, row: Mapping[str, Any], *, rows: int = 1) -> int:
    return pipeline.feed.raw(json.dumps(row).encode(), json_headers(table), to=STREAM, rows=rows)


def stored(pipeline: Loading, sql: str) -> list[Any]:
    return list(pipeline.stack.clickhouse[1, 1].execute(sql))


TIMES = {
    "1925-01-01 00:00:00": b"OutOfRange",
    -1420095600: b"OutOfRange",
    1565999999000: b"OutOfRange",  # milliseconds where seconds are meant
    4294967296: b"OutOfRange",
    "2106-02-07 06:28:16": b"OutOfRange",
    "0000-00-00 00:00:00": b"BadValue",
    "2024-01-31 23:59:59.123456789": b"BadValue",
    "2024-01-31 23:59:59+0100": b"BadValue",
    "2024-01-31 24:00:00": b"BadValue",
    "2016-12-31 23:59:60": b"BadValue",
    "": b"BadValue",
}
DAYS = {"1900-01-01": b"OutOfRange", "2149-06-07": b"OutOfRange", 1706659200: b"OutOfRange"}


def test_times_and_days_out_of_range_are_dead_letters_and_never_wrap(pipeline: Loading) -> None:
    feed, stream = pipeline.feed, pipeline.stream(*STREAM)
    table = feed.table("ranged", "id UInt64, text String, at DateTime('UTC'), day Date")
    send_json(pipeline, table, {"id": 1_000_001, "at": 4294967295, "day": "2149-06-06"})
    bad = {send_json(pipeline, table, {"id": 1, "at": at}, rows=0): reason for at, reason in TIMES.items()}
    bad |= {send_json(pipeline, table, {"id": 1, "day": day}, rows=0): reason for day, reason in DAYS.items()}
    send_json(pipeline, table, {"id": 1_000_002, "at": "2106-02-07 06:28:15", "day": 65535})
    neighbour_flows(pipeline, table)
    pipeline.settle(table)
    letters = reasons(pipeline)
    assert {offset: letters.get(f"{stream}/{offset}") for offset in bad} == bad
    limits = f"SELECT toUInt32(at), toUInt16(day) FROM {table} WHERE id > 1000000"
    assert stored(pipeline, limits) == [(4294967295, 65535)] * 2


def test_decimals_as_java_prints_them_are_the_same_number_in_each_format(pipeline: Loading) -> None:
    """`BigDecimal.toString()` of a zero of scale 8 is `0E-8`."""
    feed, stream = pipeline.feed, pipeline.stream(*STREAM)
    table = feed.table("amounts", "id UInt64, text String, amount Decimal(18, 8)")
    good = {"0E-8": "0", "1E-7": "0.0000001", "1.500000000": "1.5", "1.5E+3": "1500"}
    for text in good:
        send_json(pipeline, table, {"id": 1_000_001, "text": text, "amount": text})
        value, headers = feed.encode(table, [{"id": 1_000_001, "text": text, "amount": "7.77777777"}])
        assert value.count(b"7.77777777") == 1
        feed.raw(as_row(value, text), headers, to=STREAM, rows=1)
    tails = ["1E-9", "1.500000001", "1E10"]
    value, headers = feed.encode(table, [{"id": 1, "amount": "7.77777777"}])
    bad = [feed.raw(as_row(value, text), headers, to=STREAM) for text in tails]
    bad += [send_json(pipeline, table, {"id": 1, "amount": text}, rows=0) for text in tails]
    neighbour_flows(pipeline, table)
    pipeline.settle(table)
    letters = reasons(pipeline)
    assert [letters.get(f"{stream}/{offset}") for offset in bad] == [b"NotADecimal"] * 6
    for text, number in good.items():
        equal = f"SELECT count() FROM {table} WHERE text = '{text}' AND amount = toDecimal64('{number}', 8)"
        assert stored(pipeline, equal) == [(2,)], text


def as_row(value: bytes, text: str) -> bytes:
    """A RowBatch of one row whose last field is the decimal `7.77777777`, with another text in its place."""
    row = value[2:].replace(b"\x0a7.77777777", bytes([len(text)]) + text.encode())
    assert value[1] == len(value) - 2 < 128
    return value[:1] + bytes([len(row)]) + row


def test_an_enum_that_gets_another_name_takes_it_from_the_round_that_knows_it(pipeline: Loading) -> None:
    """Until then each message with the name is a dead letter of its own."""
    feed, stream, server = pipeline.feed, pipeline.stream(*STREAM), pipeline.stack.clickhouse[1, 1]
    table, beside = feed.table("named", "id UInt64, text String, e Enum8('a' = 1)"), feed.table("named_beside")
    send_json(pipeline, table, {"id": 1, "e": "a"})
    early = send_json(pipeline, table, {"id": 2, "e": "b"}, rows=0)
    pipeline.settle(table)
    known = feed.revisions(table)
    server.execute(f"ALTER TABLE {table} MODIFY COLUMN e Enum8('a' = 1, 'b' = 2)")
    pipeline.wait("the revision that has the name", lambda: feed.revisions(table) > known)
    sent = early
    while f"{stream}/{sent}" in reasons(pipeline):
        sent = send_json(pipeline, table, {"id": 3, "e": "b"}, rows=0)
        neighbour_flows(pipeline, beside)
        pipeline.wait("everything read", pipeline.pipeline.quiet)
    feed.expect(table, (*STREAM, sent), 1)
    pipeline.settle(table, beside)
    assert reasons(pipeline)[f"{stream}/{early}"] == b"UnknownEnumValue"
    assert stored(pipeline, f"SELECT id, toString(e) FROM {table} ORDER BY id") == [(1, "a"), (3, "b")]


def test_text_is_an_enum_s_name_and_a_number_its_number(pipeline: Loading) -> None:
    feed, stream = pipeline.feed, pipeline.stream(*STREAM)
    table = feed.table("digits", "id UInt64, text String, e Enum8('1' = 2, '2' = 1), plain Enum8('a' = 1, 'b' = 2)")
    send_json(pipeline, table, {"id": 1_000_001, "e": "1", "plain": "b"})
    send_json(pipeline, table, {"id": 1_000_002, "e": 1, "plain": 2})
    quoted = send_json(pipeline, table, {"id": 1, "plain": "2"}, rows=0)
    pipeline.settle(table)
    assert reasons(pipeline)[f"{stream}/{quoted}"] == b"UnknownEnumValue"
    values = f"SELECT id, toString(e), toInt8(e), toInt8(plain) FROM {table} WHERE id > 1000000 ORDER BY id"
    assert stored(pipeline, values) == [(1_000_001, "1", 2, 2), (1_000_002, "2", 1, 2)]
