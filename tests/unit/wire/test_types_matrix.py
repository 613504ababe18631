"""Every type: what a producer sends is what ClickHouse reads, and our bytes are ClickHouse's own for the same rows."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder, Sealed

ABSENT = object()
ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def sealed(type_: str, values: list[Any]) -> Sealed:
    """One message a value, each with one row whose column `x` holds it."""
    table = TableHistory(id=1, name="db.t", revisions=(first_revision([ServerColumn(name="x", type=type_)]),))
    assert table.current is not None
    # The wide class is what a producer with 64-bit fields of its own would send.
    batch_class = row_batch_class(table, table.current, wide=True)
    builder = BlockBuilder(table, table.current, StreamId("a", "t", 0))
    for offset, value in enumerate(values):
        batch = batch_class()
        batch.rows.add(**({} if value is ABSENT else {"x": value}))  # type: ignore[attr-defined]
        builder.append(offset, batch.SerializeToString(), 0)
    return builder.seal(MAX_ROWS)


GOOD: list[tuple[str, list[Any], list[str]]] = [
    *((f"UInt{n}", [0, 2**n - 1, ABSENT], ["0", str(2**n - 1), "0"]) for n in (8, 16, 32, 64)),
    *(
        (f"Int{n}", [-(2 ** (n - 1)), 2 ** (n - 1) - 1], [str(-(2 ** (n - 1))), str(2 ** (n - 1) - 1)])
        for n in (8, 16, 32, 64)
    ),
    ("Int128", [(-5).to_bytes(16, "little", signed=True), ABSENT], ["-5", "0"]),
    ("UInt256", [(2**255).to_bytes(32, "little")], [str(2**255)]),
    ("Float32", [1.5, float("nan"), float("-inf"), ABSENT], ["1.5", "nan", "-inf", "0"]),
    ("Float64", [-0.0, 1e300, ABSENT], ["-0", "1e300", "0"]),
    ("Bool", [True, False, ABSENT], ["true", "false", "false"]),
    (
        "String",
        [b"", b"x" * 127, b"y" * 128, b"z" * 16384, b"\xff\x00", ABSENT],
        ["", "x" * 127, "y" * 128, "z" * 16384, "\udcff\\0", ""],
    ),
    ("FixedString(3)", [b"abc", b"a", b"", ABSENT], ["abc", "a\\0\\0", "\\0\\0\\0", "\\0\\0\\0"]),
    ("UUID", [ID.bytes, ABSENT], [str(ID), str(uuid.UUID(int=0))]),
    ("IPv4", [2130706433, ABSENT], ["127.0.0.1", "0.0.0.0"]),
    ("IPv6", [bytes(15) + b"\x01", ABSENT], ["::1", "::"]),
    ("Date", [0, 65535, ABSENT], ["1970-01-01", "2149-06-06", "1970-01-01"]),
    ("Date32", [-25567, 120529, ABSENT], ["1900-01-01", "2299-12-31", "1900-01-01"]),
    ("DateTime('UTC')", [0, 2**32 - 1, ABSENT], ["1970-01-01 00:00:00", "2106-02-07 06:28:15", "1970-01-01 00:00:00"]),
    (
        "DateTime64(3, 'UTC')",
        [-1, 1500, ABSENT],
        ["1969-12-31 23:59:59.999", "1970-01-01 00:00:01.500", "1970-01-01 00:00:00.000"],
    ),
    ("DateTime64(9, 'UTC')", [1], ["1970-01-01 00:00:00.000000001"]),
    ("Decimal(9, 2)", ["1234567.89", "-0.5", "+7", ".25", "5.", ABSENT], ["1234567.89", "-0.5", "7", "0.25", "5", "0"]),
    ("Decimal(9, 2)", ["0E-8", "1e2", "1.500", "12.5E-1"], ["0", "100", "1.5", "1.25"]),
    ("Decimal(18, 0)", ["-" + "9" * 18], ["-" + "9" * 18]),
    ("Decimal(38, 38)", ["0." + "1" * 38], ["0." + "1" * 38]),
    ("Decimal(76, 10)", ["9" * 66 + ".5", ABSENT], ["9" * 66 + ".5", "0"]),
    ("Enum8('a' = -3, 'b' = 5)", [5, -3, ABSENT], ["b", "a", "a"]),
    ("Enum16('a' = 1, 'b' = 1000)", [1000, ABSENT], ["b", "a"]),
    ("Nullable(Int32)", [5, ABSENT, 0], ["5", "\\N", "0"]),
    ("Nullable(String)", [b"a", ABSENT], ["a", "\\N"]),
    ("Nullable(FixedString(2))", [b"a", ABSENT], ["a\\0", "\\N"]),
    ("Nullable(Decimal(9, 1))", ["1.5", ABSENT], ["1.5", "\\N"]),
    ("Nullable(UUID)", [ABSENT, ID.bytes], ["\\N", str(ID)]),
    ("Nullable(Float64)", [ABSENT, 2.5], ["\\N", "2.5"]),
    ("Nullable(Bool)", [ABSENT, True], ["\\N", "true"]),
    ("LowCardinality(String)", [b"b", ABSENT, b"a", b"b"], ["b", "", "a", "b"]),
    ("LowCardinality(Nullable(String))", [b"b", ABSENT, b"", b"b"], ["b", "\\N", "", "b"]),
    ("LowCardinality(Date32)", [0, ABSENT], ["1970-01-01", "1900-01-01"]),
    ("LowCardinality(Nullable(Int64))", [0, ABSENT, 7], ["0", "\\N", "7"]),
    ("LowCardinality(FixedString(2))", [b"b", ABSENT, b"aa"], ["b\\0", "\\0\\0", "aa"]),
    ("Array(UInt16)", [[1, 65535], [], ABSENT], ["[1,65535]", "[]", "[]"]),
    ("Array(String)", [[b"a", b""], []], ["['a','']", "[]"]),
    ("Array(Array(Int8))", [[{"value": [1, -1]}, {}], ABSENT], ["[[1,-1],[]]", "[]"]),
    ("Array(Nullable(Int32))", [[{"value": 1}, {}]], ["[1,NULL]"]),
    ("Array(LowCardinality(String))", [[b"a", b"b"], [], [b"a"]], ["['a','b']", "[]", "['a']"]),
    ("Array(Decimal(9, 2))", [["1.5", "2"]], ["[1.5,2]"]),
    ("Array(Decimal(9, 2))", [[]], ["[]"]),
    ("Array(Enum8('a' = 1))", [[1, 1]], ["['a','a']"]),
    ("Map(String, UInt8)", [[{"key": b"k", "value": 7}, {"key": b"l"}], ABSENT], ["{'k':7,'l':0}", "{}"]),
    (
        "Map(LowCardinality(String), Array(Nullable(UInt8)))",
        [[{"key": b"k", "value": [{}, {"value": 3}]}]],
        ["{'k':[NULL,3]}"],
    ),
    ("Array(Map(String, UInt8))", [[{"value": [{"key": b"k", "value": 7}]}, {}]], ["[{'k':7},{}]"]),
    ("Tuple(UInt8, String)", [{"v1": 7, "v2": b"x"}, ABSENT, {}], ["(7,'x')", "(0,'')", "(0,'')"]),
    (
        "Tuple(a Nullable(Int8), b Array(LowCardinality(String)))",
        [{"b": [b"x"]}, ABSENT, {"a": 3}],
        ["(NULL,['x'])", "(NULL,[])", "(3,[])"],
    ),
    ("Array(Tuple(UInt8, Array(UInt8)))", [[{"v1": 1, "v2": [2]}, {}]], ["[(1,[2]),(0,[])]"]),
    ("SimpleAggregateFunction(sum, UInt64)", [5], ["5"]),
    ("Point", [{"v1": 1.5, "v2": -2.0}], ["(1.5,-2)"]),
    ("Polygon", [[{"value": [{"v1": 1.0, "v2": 2.0}]}]], ["[[(1,2)]]"]),
]


@pytest.mark.parametrize(("type_", "values", "expected"), GOOD, ids=[case[0] for case in GOOD])
def test_clickhouse_reads_what_was_sent_and_would_write_the_same_bytes(
    oracle: Any, tmp_path: Path, type_: str, values: list[Any], expected: list[str]
) -> None:
    # given a block of these values
    found = sealed(type_, values)
    assert found.dead == ()
    assert found.block is not None
    # when ClickHouse reads it
    path = tmp_path / "block.native"
    path.write_bytes(found.block.body)
    select = (
        f"SELECT x FROM file('{path}', 'Native') SETTINGS max_threads = 1, enable_named_columns_in_function_tuple = 0"
    )
    # then it sees the values, and its own bytes for them are ours
    text = oracle.query(select, "TSV").decode("utf-8", "surrogateescape")
    assert text.removesuffix("\n").split("\n") == expected
    # (which leave out a DateTime's zone in a file; the native protocol has it)
    body = found.block.body.replace(b"\x0fDateTime('UTC')", b"\x08DateTime")
    assert oracle.query(select, "Native") == body


BAD: list[tuple[str, Any, str]] = [
    ("UInt8", 256, "OutOfRange"),
    ("UInt32", 1 << 40, "OutOfRange"),
    ("Int8", -129, "OutOfRange"),
    ("Int32", 1 << 31, "OutOfRange"),
    ("Date", 65536, "OutOfRange"),
    ("Date32", 120530, "OutOfRange"),
    ("DateTime", 1 << 32, "OutOfRange"),
    ("DateTime64(3)", 10413792000000, "OutOfRange"),
    ("Nullable(UInt16)", 65536, "OutOfRange"),
    ("LowCardinality(UInt8)", 256, "OutOfRange"),
    ("Enum8('a' = 1, 'b' = 3)", 2, "UnknownEnumValue"),
    ("Enum8('a' = 1, 'b' = 2)", 3, "UnknownEnumValue"),
    ("FixedString(3)", b"abcd", "WrongLength"),
    ("UUID", b"short", "WrongLength"),
    ("IPv6", bytes(17), "WrongLength"),
    ("Int128", bytes(15), "WrongLength"),
    ("Decimal(9, 2)", "1.234", "NotADecimal"),
    ("Decimal(9, 2)", "12345678", "NotADecimal"),
    ("Decimal(9, 2)", "1e7", "NotADecimal"),
    ("Decimal(9, 2)", "1E-3", "NotADecimal"),
    ("Decimal(9, 2)", "1e999999999", "NotADecimal"),
    ("Decimal(9, 2)", "NaN", "NotADecimal"),
    ("Decimal(9, 2)", "", "NotADecimal"),
    ("Decimal(9, 2)", "1\n", "NotADecimal"),
    ("Array(UInt8)", [1, 256], "OutOfRange"),
    ("Array(Array(UInt8))", [{"value": [1]}, {"value": [256]}], "OutOfRange"),
    ("Array(Nullable(UInt8))", [{"value": 256}, {}], "OutOfRange"),
    ("Map(String, UInt8)", [{"key": b"k", "value": 256}], "OutOfRange"),
    ("Tuple(a UInt8, b FixedString(1))", {"a": 1, "b": b"xx"}, "WrongLength"),
]


@pytest.mark.parametrize(("type_", "value", "reason"), BAD, ids=[f"{case[0]} {case[1]!r:.20}" for case in BAD])
def test_a_value_that_does_not_fit_makes_exactly_its_message_bad(type_: str, value: Any, reason: str) -> None:
    # given a bad message between two good ones
    found = sealed(type_, [ABSENT, value, ABSENT])
    # then it is dead, and the block is that of the two others
    assert [(dead.offset, dead.reason) for dead in found.dead] == [(1, reason)]
    alone = sealed(type_, [ABSENT, ABSENT]).block
    assert found.block is not None
    assert alone is not None
    assert found.block.body == alone.body
    assert (found.block.begin, found.block.end, found.block.messages) == (0, 2, 2)


def test_the_float_of_a_message_keeps_its_bits() -> None:
    quiet = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000123))[0]
    found = sealed("Float64", [quiet])
    assert found.block is not None
    assert found.block.body.endswith(struct.pack("<Q", 0x7FF8000000000123))
