"""Constants are filled in here; whatever could mean something else on the server is refused."""

from __future__ import annotations

import pytest

from blockhouse.errors import Permanent
from blockhouse.schema.defaults import constant_default
from blockhouse.schema.model import Column, DefaultKind


def default(type_: str, expression: str) -> object:
    column = Column(name="c", type=type_, field=1, default_kind=DefaultKind.DEFAULT, default_expression=expression)
    return constant_default("db.t", column)


@pytest.mark.parametrize(
    ("type_", "expression", "value"),
    [
        ("UInt8", "5", 5),
        ("UInt8", "CAST(5, 'UInt8')", 5),
        ("UInt8", "CAST(5 AS UInt8)", 5),
        ("UInt8", "'5'", 5),
        ("Int32", "-5", -5),
        ("Int64", "toInt64(-1)", -1),
        ("Float64", "1.5", 1.5),
        ("Float32", "toFloat32(2)", 2.0),
        ("Bool", "true", 1),
        ("String", "'a\\'b'", b"a'b"),
        ("String", "toString(5)", b"5"),
        ("LowCardinality(String)", "toLowCardinality('x')", b"x"),
        ("FixedString(3)", "'ab'", b"ab"),
        ("Nullable(UInt8)", "NULL", None),
        ("Nullable(UInt8)", "CAST(NULL, 'Nullable(UInt8)')", None),
        ("Nullable(UInt8)", "7", 7),
        ("Date", "toDate('1970-01-03')", 2),
        ("Date", "'1970-01-03'", 2),
        ("Date32", "toDate32('1969-12-31')", -1),
        ("DateTime('UTC')", "'1970-01-01 00:01:00'", 60),
        ("DateTime", "toDateTime('1970-01-01 00:01:00', 'UTC')", 60),
        ("DateTime", "0", 0),
        ("DateTime('Europe/Berlin')", "'1970-01-01 01:00:00'", 0),
        ("DateTime64(3, 'UTC')", "'1970-01-01 00:00:01.5'", 1500),
        ("DateTime64(3)", "2", 2000),
        ("Enum8('a' = 3, 'b' = 4)", "'b'", 4),
        ("Enum8('a' = 3, 'b' = 4)", "CAST('a', 'Enum8(\\'a\\' = 3, \\'b\\' = 4)')", 3),
        ("Decimal(9, 2)", "1.5", "1.5"),
        ("Decimal(9, 2)", "toDecimal32('-1.50', 2)", "-1.50"),
        ("UUID", "toUUID('00112233-4455-6677-8899-aabbccddeeff')", bytes.fromhex("00112233445566778899aabbccddeeff")),
        ("IPv4", "toIPv4('127.0.0.1')", 2130706433),
        ("IPv6", "'::1'", bytes(15) + b"\1"),
        ("Int128", "-5", (-5).to_bytes(16, "little", signed=True)),
        ("Array(UInt8)", "[]", None),
        ("Array(UInt8)", "emptyArrayUInt8()", None),
        ("Map(String, UInt8)", "map()", None),
    ],
)
def test_a_constant_has_the_form_in_which_a_message_would_send_it(type_: str, expression: str, value: object) -> None:
    assert default(type_, expression) == value


@pytest.mark.parametrize(
    ("type_", "expression"),
    [
        ("DateTime", "now()"),
        ("UUID", "generateUUIDv4()"),
        ("UInt8", "a + 1"),
        ("UInt8", "other"),
        ("UInt8", "300"),
        ("UInt8", "-1"),
        ("UInt8", "1.5"),
        ("UInt8", "NULL"),
        ("Decimal(9, 2)", "1.234"),
        ("FixedString(2)", "'abc'"),
        ("Enum8('a' = 1)", "'b'"),
        ("Enum8('a' = 1)", "2"),
        ("Date", "'1970-01-03 01:00:00'"),
        ("Date", "'2020-13-01'"),
        ("DateTime", "'1970-01-01 00:01:00'"),
        ("DateTime", "toDate('1970-01-03')"),
        ("DateTime('Europe/Berlin')", "'2024-10-27 02:30:00'"),
        ("Array(UInt8)", "[1]"),
        ("Tuple(UInt8, UInt8)", "(1, 2)"),
        ("UInt8", "(("),
    ],
)
def test_everything_else_is_refused_with_table_column_and_expression(type_: str, expression: str) -> None:
    with pytest.raises(Permanent) as refused:
        default(type_, expression)
    assert refused.value.reason == "UnsupportedDefault"
    assert all(part in str(refused.value) for part in ("db.t", "column c", expression))


@pytest.mark.parametrize(
    ("type_", "value"), [("UInt8", 0), ("String", b""), ("Nullable(UInt8)", None), ("Date32", -25567)]
)
def test_without_a_default_a_column_has_the_zero_of_its_type(type_: str, value: object) -> None:
    assert constant_default("db.t", Column(name="c", type=type_, field=1)) == value
