"""Every ClickHouse type x its values x the three formats: what is sent, and what a server then reads."""

from __future__ import annotations

import math
import uuid

from tests.composed_type_cases import COMPOSED
from tests.format_messages import NULL, Digits, Kinds
from tests.type_values import ID, NAN, SKIP, Case, Value, number, text
from tests.wide_integer_cases import WIDE

LAST_ID = uuid.UUID(int=(1 << 128) - 1)


def _integer(type_: str, low: int, high: int) -> Case:
    name = "ulong_value" if low == 0 else "long_value"
    beyond = [value for value in (low - 1, high + 1) if -(1 << 63) <= value < 1 << 64]
    return Case(
        type_,
        "0",
        [number(low, name), number(high, name), Value("7", SKIP, Kinds(int_value=7), "7"), number(1, "uint_value")],
        [
            *(
                Value(
                    "OutOfRange",
                    value if (low < 0 and value < 1 << 63) or (low == 0 and value >= 0) else SKIP,
                    Kinds(**{"long_value" if value < 1 << 63 else "ulong_value": value}),
                    Digits(str(value)),
                )
                for value in beyond
            ),
            Value("WrongKind", SKIP, Kinds(double_value=1.0), []),
            Value("NotNullable", SKIP, NULL, None),
            Value("BadValue", SKIP, text(b"x"), "x"),
            Value("BadValue", SKIP, SKIP, Digits("1.5")),
        ],
        ("7", "7"),
    )


CASES: list[Case] = [
    *(_integer(f"UInt{bits}", 0, (1 << bits) - 1) for bits in (8, 16, 32, 64)),
    *(_integer(f"Int{bits}", -(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)),
    *WIDE,
    Case(
        "Float32",
        "0",
        [
            Value("1.5", 1.5, Kinds(double_value=1.5), 1.5),
            Value("0.1", 0.1, Kinds(double_value=0.1), 0.1),
            Value("nan", NAN, Kinds(double_value=NAN), "nan"),
            Value("-inf", -math.inf, Kinds(double_value=-math.inf), "-inf"),
            Value("-0", -0.0, Kinds(double_value=-0.0), -0.0),
            Value("16777216", 16777216.0, Kinds(int_value=16777216), 16777216),
        ],
        [
            Value("OutOfRange", SKIP, Kinds(double_value=1e300), 1e300),
            Value("OutOfRange", SKIP, Kinds(int_value=16777217)),
            Value("Undecodable", SKIP, SKIP, Digits("NaN")),
            Value("Undecodable", SKIP, SKIP, Digits("-Infinity")),
        ],
        ("2.5", "2.5"),
    ),
    Case(
        "Float64",
        "0",
        [
            Value("1e300", 1e300, Kinds(double_value=1e300), 1e300),
            Value("-0", -0.0, Kinds(double_value=-0.0), Digits("-0.0")),
            Value("inf", math.inf, Kinds(double_value=math.inf), "inf"),
            Value("nan", NAN, Kinds(double_value=NAN), "NaN"),
            Value("9007199254740992", 2.0**53, Kinds(ulong_value=1 << 53), 1 << 53),
        ],
        [
            Value("OutOfRange", SKIP, Kinds(ulong_value=(1 << 53) + 1), Digits("1e400")),
            Value("WrongKind", SKIP, Kinds(bool_value=True), True),
        ],
        ("-1.25", "-1.25"),
    ),
    Case(
        "Bool",
        "false",
        [Value("true", True, Kinds(bool_value=True), True), Value("false", False, Kinds(int_value=0), 0)],
        [Value("OutOfRange", SKIP, Kinds(int_value=2), 2), Value("WrongKind", SKIP, SKIP, "true")],
        ("true", "true"),
        old=False,
    ),
    Case(
        "String",
        "",
        [
            Value("ab", b"ab", text(b"ab"), "ab"),
            Value("", b"", text(b""), ""),
            Value("x" * 200, b"x" * 200, text(b"x" * 200), "x" * 200),
            Value("é\\0", "é\0".encode(), text("é\0".encode()), "é\0"),
        ],
        [Value("WrongKind", SKIP, Kinds(int_value=1), 1), Value("Undecodable", SKIP, SKIP, "\udcff")],
        ("'a\\'b'", "a\\'b"),
    ),
    Case(
        "FixedString(3)",
        "\\0\\0\\0",
        [Value("abc", b"abc", text(b"abc"), "abc"), Value("a\\0\\0", b"a", text(b"a"), "a")],
        [Value("WrongLength", b"abcd", text(b"abcd"), "abcd")],
        ("'zz'", "zz\\0"),
    ),
    Case(
        "UUID",
        str(uuid.UUID(int=0)),
        [
            Value(str(ID), ID.bytes, text(str(ID).encode()), str(ID)),
            Value(str(LAST_ID), LAST_ID.bytes, text(str(LAST_ID).encode()), str(LAST_ID)),
        ],
        [Value("WrongLength", b"short"), Value("BadValue", SKIP, text(ID.hex.encode()), "x")],
        (f"'{ID}'", str(ID)),
    ),
    Case(
        "IPv4",
        "0.0.0.0",
        [
            Value("127.0.0.1", 2130706433, text(b"127.0.0.1"), "127.0.0.1"),
            Value("255.255.255.255", (1 << 32) - 1, Kinds(uint_value=(1 << 32) - 1), (1 << 32) - 1),
        ],
        [Value("OutOfRange", 1 << 32, Kinds(long_value=-1), 1 << 32), Value("BadValue", SKIP, text(b"1.2.3"), "::1")],
        ("'10.0.0.1'", "10.0.0.1"),
        old=False,
    ),
    Case(
        "IPv6",
        "::",
        [Value("::1", bytes(15) + b"\1", text(b"::1"), "::1")],
        [Value("WrongLength", bytes(17)), Value("BadValue", SKIP, text(b"1.2.3.4"), "x")],
        ("'fe80::1'", "fe80::1"),
        old=False,
    ),
    Case(
        "Date",
        "1970-01-01",
        [
            Value("1970-01-01", 0, text(b"1970-01-01"), "1970-01-01"),
            Value("2106-02-07", 49710, Kinds(timestamp=49710 * 86_400_000 + 5), 49710),
        ],
        [
            Value("OutOfRange", 65536, Kinds(timestamp=65536 * 86_400_000), "2149-06-07"),
            Value("OutOfRange", SKIP, text(b"1969-12-31"), "1969-12-31"),
            Value("BadValue", SKIP, text(b"2024-02-30"), "2024-02-30"),
        ],
        ("'2024-01-02'", "2024-01-02"),
    ),
    Case(
        "Date32",
        "1900-01-01",
        [
            Value("1900-01-01", -25567, Kinds(long_value=-25567), "1900-01-01"),
            Value("2299-12-31", 120529, text(b"2299-12-31"), 120529),
        ],
        [Value("OutOfRange", 120530, text(b"2300-01-01"), "1899-12-31")],
        ("toDate32('2200-01-01')", "2200-01-01"),
        old=False,
    ),
    Case(
        "DateTime('UTC')",
        "1970-01-01 00:00:00",
        [
            Value("2001-09-09 01:46:40", 10**9, Kinds(timestamp=10**12 + 999), "2001-09-09 01:46:40"),
            Value("2106-02-07 06:28:15", (1 << 32) - 1, Kinds(uint_value=(1 << 32) - 1), (1 << 32) - 1),
            Value("2001-09-09 01:46:40", SKIP, text(b"2001-09-09T03:46:40+02:00"), "2001-09-09T01:46:40Z"),
        ],
        [
            Value("OutOfRange", 1 << 32, Kinds(timestamp=(1 << 32) * 1000), "2106-02-07 06:28:16"),
            Value("BadValue", SKIP, text(b"2001-09-09 01:46:40.5"), "2001-09-09 01:46:40.5"),
            Value("BadValue", SKIP, text(b"1000000000x"), Digits("1.5")),
        ],
        ("'2020-01-01 00:00:00'", "2020-01-01 00:00:00"),
    ),
    Case(
        "DateTime('Europe/Berlin')",
        "1970-01-01 01:00:00",
        [
            Value("2024-07-01 12:00:00", 1719828000, text(b"2024-07-01 12:00:00"), "2024-07-01 12:00:00"),
        ],
        [Value("BadValue", SKIP, text(b"2024-10-27 02:30:00"), "2024-03-31 02:30:00")],
        ("toDateTime(0)", "1970-01-01 01:00:00"),
    ),
    Case(
        "DateTime64(3, 'UTC')",
        "1970-01-01 00:00:00.000",
        [
            Value("2001-09-09 01:46:40.123", 10**12 + 123, Kinds(timestamp=10**12 + 123), "2001-09-09 01:46:40.123"),
            Value("1969-12-31 23:59:59.999", -1, Kinds(long_value=-1), "1969-12-31 23:59:59.999"),
            Value("1970-01-01 00:00:01.500", 1500, SKIP, 1.5),
        ],
        [
            Value("OutOfRange", 10413792000000, Kinds(timestamp=10413792000000), "2300-01-01 00:00:00"),
            Value("BadValue", SKIP, text(b"2001-09-09 01:46:40.1234"), Digits("0.0001")),
        ],
        ("'2020-01-01 00:00:00.5'", "2020-01-01 00:00:00.500"),
        old=False,
    ),
    Case(
        "DateTime64(9, 'UTC')",
        "1970-01-01 00:00:00.000000000",
        [Value("1970-01-01 00:00:00.001000000", 10**6, Kinds(timestamp=1), "1970-01-01 00:00:00.001")],
        [Value("OutOfRange", SKIP, Kinds(timestamp=1 << 62), "2299-01-01 00:00:00")],
        old=False,
    ),
    Case(
        "Time",
        "00:00:00",
        [Value("00:00:00", 0, Kinds(long_value=0), 0), Value("13:45:10", 49510, Kinds(long_value=49510), 49510)]
        + [Value(f"{sign}999:59:59", n, Kinds(long_value=n), n) for sign, n in (("", 3599999), ("-", -3599999))],
        [Value("OutOfRange", 3600000, Kinds(long_value=-3600000), 3600000), Value("BadValue", SKIP, SKIP, "13:45:10")],
        old=False,
    ),
    Case(
        "Time64(3)",
        "00:00:00.000",
        [
            Value("00:00:01.500", 1500, Kinds(long_value=1500), 1500),
            Value("999:59:59.999", 3599999999, Kinds(long_value=3599999999), 3599999999),
            Value("-00:00:00.001", -1, Kinds(long_value=-1), -1),
        ],
        [Value("OutOfRange", 3600000000, Kinds(long_value=-3600000000), 3600000000)],
        old=False,
    ),
    Case(
        "Decimal(9, 2)",
        "0",
        [
            Value("1234567.89", "1234567.89", text(b"1234567.89"), Digits("1234567.89")),
            Value("-0.5", "-0.5", Kinds(double_value=-0.5), "-0.5"),
            Value("1.1", "1.1", Kinds(double_value=1.1), 1.1),
            Value("7", "+7", Kinds(int_value=7), 7),
            Value("100", "1e2", SKIP, Digits("1e2")),
            Value("0", "0E-8", text(b"0E-8"), Digits("0E-8")),
            Value("1.5", "1.500000000", text(b"1.500000000"), Digits("1.500000000")),
        ],
        [
            Value("NotADecimal", "1.234", Kinds(double_value=1.234), Digits("1.234")),
            Value("NotADecimal", "12345678", Kinds(int_value=12345678), 12345678),
            Value("NotADecimal", "x", text(b"x"), "x"),
            Value("NotADecimal", "", Kinds(double_value=NAN), ""),
        ],
        ("1.5", "1.5"),
    ),
    Case(
        "Decimal(18, 0)",
        "0",
        [Value("-" + "9" * 18, "-" + "9" * 18, Kinds(long_value=-int("9" * 18)), Digits("-" + "9" * 18))],
        [Value("NotADecimal", "1" + "0" * 18, text(b"1" + b"0" * 18), Digits("1e18"))],
        ("5", "5"),
    ),
    Case(
        "Decimal(38, 10)",
        "0",
        [Value("1.0000000001", "1.0000000001", text(b"1.0000000001"), Digits("1.0000000001"))],
        default=("2", "2"),
    ),
    Case(
        "Decimal(76, 10)",
        "0",
        [Value("9" * 66 + ".5", "9" * 66 + ".5", text(b"9" * 66 + b".5"), Digits("9" * 66 + ".5"))],
        [Value("NotADecimal", "1" + "0" * 66, text(b"1" + b"0" * 66), Digits("1e66"))],
        old=False,
    ),
    Case(
        "Enum8('a' = -3, 'b' = 5)",
        "a",
        [Value("b", 5, text(b"b"), "b"), Value("a", -3, Kinds(int_value=-3), -3)],
        [Value("UnknownEnumValue", 1, text(b"c"), "c"), Value("UnknownEnumValue", 300, Kinds(int_value=0), 0)],
        ("'b'", "b"),
    ),
    Case(
        "Enum16('x' = 1, 'y' = 1000)",
        "x",
        [Value("y", 1000, Kinds(uint_value=1000), "y"), Value("x", 1, text(b"x"), 1)],
        [Value("UnknownEnumValue", 999, text(b""), "")],
        ("'y'", "y"),
    ),
    *COMPOSED,
]
