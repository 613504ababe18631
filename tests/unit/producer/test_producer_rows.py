"""Rows as mappings become the message that the aggregator's own decoder reads back."""

from __future__ import annotations

import datetime as dt
import decimal
import ipaddress
import re
import uuid
from typing import Any

import pytest

from blockhouse.errors import Permanent
from blockhouse.producer.rows import RowEncoder, UnknownColumn
from blockhouse.producer.values import scalar
from blockhouse.schema.model import Column, Revision, TableHistory
from blockhouse.schema.parse import parse_type
from blockhouse.schema.proto import row_batch_class
from blockhouse.schema.types import Decimal


def table_of(*types: str) -> TableHistory:
    """A table with columns c1, c2, ... of these types, at revision 3."""
    columns = tuple(Column(name=f"c{i}", type=t, field=i) for i, t in enumerate(types, 1))
    return TableHistory(id=1, name="db.t", revisions=(Revision(number=3, columns=columns),))


def encoder(*types: str) -> RowEncoder:
    return RowEncoder(table_of(*types), table_of(*types).revisions[0])


def read(payload: bytes, *types: str) -> Any:
    """The rows of a payload, by the official runtime."""
    batch: Any = row_batch_class(table_of(*types), table_of(*types).revisions[0])()
    batch.ParseFromString(payload)
    return batch.rows


@pytest.mark.parametrize(
    ("type_", "value", "sent"),
    [
        ("UInt64", 2**64 - 1, 2**64 - 1),
        ("Int8", -128, -128),
        ("Bool", True, True),
        ("Float64", 1, 1.0),
        ("String", "höhe", "höhe".encode()),
        ("String", b"\xff\x00", b"\xff\x00"),
        ("Date", dt.date(1970, 1, 3), 2),
        ("DateTime", dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1))), 3600),
        ("DateTime64(3)", dt.datetime(1970, 1, 1, 0, 0, 1, 234567, tzinfo=dt.UTC), 1234),
        ("IPv4", "127.0.0.1", 2130706433),
        ("IPv6", ipaddress.IPv6Address("::1"), bytes(15) + b"\x01"),
        ("UUID", uuid.UUID(int=1), bytes(15) + b"\x01"),
        ("Decimal(9, 2)", decimal.Decimal("-12.5"), "-12.5"),
        ("Decimal(9, 2)", decimal.Decimal("1E+3"), "1000"),
        ("Enum8('a' = -1, 'b' = 5)", "b", 5),
        ("Enum8('a' = -1, 'b' = 5)", -1, -1),
        ("FixedString(4)", "ab", b"ab"),
        ("Nullable(Int32)", 0, 0),
        ("LowCardinality(String)", "x", b"x"),
        ("UInt128", 258, b"\x02\x01" + bytes(14)),
        ("Int128", -1, b"\xff" * 16),
    ],
)
def test_a_value_is_sent_as_the_field_takes_it(type_: str, value: object, sent: object) -> None:
    table = encoder(type_)

    (row,) = read(table.encode([{"c1": value}]), type_)

    assert row.HasField("c1")
    assert row.c1 == sent


def test_lists_maps_and_tuples_are_nested_as_in_the_proto_file() -> None:
    types = ("Array(Nullable(String))", "Map(String, Array(Int32))", "Tuple(a Int8, b String)", "Array(Array(UInt8))")
    table = encoder(*types)

    payload = table.encode([{"c1": ["x", None], "c2": {"k": [1, 2]}, "c3": {"b": "y"}, "c4": [[1], []]}])

    (row,) = read(payload, *types)
    assert [item.HasField("value") for item in row.c1] == [True, False]
    assert (row.c2[0].key, list(row.c2[0].value)) == (b"k", [1, 2])
    assert (row.c3.HasField("a"), row.c3.b) == (False, b"y")
    assert [list(item.value) for item in row.c4] == [[1], []]


def test_a_column_without_a_value_is_left_out() -> None:
    table = encoder("Int32", "Nullable(String)")

    first, second = read(table.encode([{}, {"c1": 0, "c2": None}]), "Int32", "Nullable(String)")

    assert [first.HasField("c1"), second.HasField("c1"), second.HasField("c2")] == [False, True, False]


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        ("UInt8", 256, "256 is outside 0..255"),
        ("UInt8", "1", "str was given, expected int"),
        ("Date", dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "datetime was given, expected datetime.date"),
        ("DateTime", dt.datetime(2020, 1, 1), "has no time zone"),
        ("Enum8('a' = 1)", "b", "'b' is none of a"),
        ("Enum8('a' = 1, 'b' = 3)", 2, "2 is none of a = 1, b = 3"),
        ("FixedString(2)", "abc", "3 bytes do not fit 2"),
        ("UUID", b"123", "3 bytes do not fit 16"),
        ("Decimal(4, 2)", "100", "does not fit 4 digits"),
        ("Decimal(4, 2)", "0.001", "does not fit 4 digits"),
        ("Decimal(4, 2)", "NaN", "is no decimal number"),
        ("Array(String)", "abc", "expected a list"),
        ("Tuple(Int8, Int8)", [1], "1 elements were given, expected 2"),
        ("IPv4", "300.1.1.1", "300.1.1.1"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_before_it_is_sent(type_: str, value: object, message: str) -> None:
    with pytest.raises(Permanent) as refused:
        encoder(type_).encode([{}, {"c1": value}])

    assert str(refused.value).startswith("table db.t, row 1, column c1: ")
    assert message in str(refused.value)


def test_an_unknown_column_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownColumn, match=r"revision 3 has no column 'x' for producers \(it has c1\)"):
        encoder("Int8").encode([{"x": 1}])


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("String", 1, "int was given, expected str or bytes or bytearray"),
        ("DateTime", "2024-01-31", "str was given, expected datetime.datetime with a time zone, or int: ticks"),
        ("Date", "2024-01-31", "str was given, expected datetime.date, or int"),
        ("UInt8", "1", "str was given, expected int"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_with_the_right_ones(type_: str, value: object, expected: str) -> None:
    with pytest.raises(Permanent, match=re.escape(expected)):
        encoder(type_).encode([{"c1": value}])


@pytest.mark.parametrize(
    "type_", ["Decimal(18, 2)", "Decimal(5, 0)", "Decimal(1, 1)", "Decimal(38, 38)", "Decimal(1, 0)"]
)
def test_the_example_of_a_decimal_is_one_that_it_takes(type_: str) -> None:
    parsed = parse_type(type_)
    assert isinstance(parsed, Decimal)
    example = re.search(r"such as (\S+),", parsed.meaning)
    assert example is not None

    assert scalar(parsed, example[1]) == example[1]
