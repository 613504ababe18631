"""Types made of others: Nullable, LowCardinality, Array, Map, Tuple, Nested. See `tests/type_cases.py`."""

from __future__ import annotations

from tests.format_messages import NULL, Kinds
from tests.type_values import ABSENT, ID, SKIP, Case, Value, number, text

COMPOSED: list[Case] = [
    Case(
        "Nullable(Int32)",
        "\\N",
        [Value("5", 5, Kinds(int_value=5), 5), Value("\\N", ABSENT, NULL, None), Value("0", 0, Kinds(long_value=0), 0)],
        [Value("OutOfRange", 1 << 31, Kinds(long_value=1 << 31), 1 << 31)],
        ("7", "7"),
        nullable=True,
    ),
    Case(
        "Nullable(String)",
        "\\N",
        [Value("a", b"a", text(b"a"), "a"), Value("\\N", ABSENT, NULL, None)],
        default=("'d'", "d"),
        nullable=True,
    ),
    Case(
        "Nullable(Decimal(9, 1))",
        "\\N",
        [Value("1.5", "1.5", text(b"1.5"), 1.5), Value("\\N", ABSENT, NULL, None)],
        default=("NULL", "\\N"),
        nullable=True,
    ),
    Case(
        "Nullable(UUID)",
        "\\N",
        [Value(str(ID), ID.bytes, text(str(ID).encode()), str(ID)), Value("\\N", ABSENT, NULL, None)],
        nullable=True,
    ),
    Case(
        "Nullable(Date)",
        "\\N",
        [Value("1970-01-02", 1, Kinds(timestamp=86_400_000), "1970-01-02"), Value("\\N", ABSENT, NULL, None)],
        nullable=True,
    ),
    Case(
        "Nullable(Enum8('a' = 1))",
        "\\N",
        [Value("a", 1, text(b"a"), "a"), Value("\\N", ABSENT, NULL, None)],
        nullable=True,
    ),
    Case(
        "LowCardinality(String)",
        "",
        [Value("b", b"b", text(b"b"), "b"), Value("a", b"a", text(b"a"), "a"), Value("b", b"b", text(b"b"), "b")],
        [Value("NotNullable", SKIP, NULL, None)],
        ("'lc'", "lc"),
    ),
    Case(
        "LowCardinality(Nullable(String))",
        "\\N",
        [Value("b", b"b", text(b"b"), "b"), Value("\\N", ABSENT, NULL, None), Value("", b"", text(b""), "")],
        nullable=True,
    ),
    Case(
        "Array(UInt16)",
        "[]",
        [
            Value("[1,65535]", [1, 65535], Kinds(list_value=[Kinds(int_value=1), Kinds(uint_value=65535)]), [1, 65535]),
            Value("[]", [], Kinds(list_value=[]), []),
        ],
        [
            Value("OutOfRange", [1, 65536], Kinds(list_value=[Kinds(int_value=-1)]), [1, 65536]),
            Value("NotNullable", SKIP, Kinds(list_value=[NULL]), [None]),
            Value("WrongKind", SKIP, Kinds(int_value=1), 1),
        ],
    ),
    Case("Array(String)", "[]", [Value("['a','']", [b"a", b""], Kinds(list_value=[text(b"a"), text(b"")]), ["a", ""])]),
    Case(
        "Array(Array(Int8))",
        "[]",
        [
            Value(
                "[[1,-1],[]]",
                [{"value": [1, -1]}, {}],
                Kinds(list_value=[Kinds(list_value=[Kinds(int_value=1), Kinds(long_value=-1)]), Kinds(list_value=[])]),
                [[1, -1], []],
            )
        ],
        [
            Value(
                "OutOfRange", [{"value": [128]}], Kinds(list_value=[Kinds(list_value=[Kinds(int_value=128)])]), [[128]]
            )
        ],
    ),
    Case(
        "Array(Nullable(Int32))",
        "[]",
        [Value("[1,NULL]", [{"value": 1}, {}], Kinds(list_value=[Kinds(int_value=1), NULL]), [1, None])],
    ),
    Case(
        "Array(Date)",
        "[]",
        [Value("['1970-01-02']", [1], Kinds(list_value=[Kinds(timestamp=86_400_000)]), ["1970-01-02"])],
    ),
    Case(
        "Tuple(UInt8, String)",
        "(0,'')",
        [Value("(7,'x')", {"v1": 7, "v2": b"x"}, SKIP, [7, "x"])],
        [Value("OutOfRange", {"v1": 256}, SKIP, [256, ""]), Value("WrongKind", SKIP, Kinds(int_value=1), [1])],
    ),
    Case(
        "Tuple(a UInt8, b String)",
        "(0,'')",
        [Value("(7,'x')", {"a": 7, "b": b"x"}, SKIP, {"b": "x", "a": 7})],
        old=False,
    ),
    Case(
        "Map(String, UInt8)",
        "{}",
        [Value("{'k':7}", [{"key": b"k", "value": 7}], SKIP, {"k": 7})],
        [Value("OutOfRange", [{"key": b"k", "value": 256}], SKIP, {"k": 256})],
        old=False,
    ),
    # 18.16 takes it for a Nested.
    Case("Array(Tuple(UInt8, UInt8))", "[]", [Value("[(1,2)]", [{"v1": 1, "v2": 2}], SKIP, [[1, 2]])], old=False),
    Case("SimpleAggregateFunction(sum, UInt64)", "0", [number(5)], old=False),
    Case("Point", "(0,0)", [Value("(1.5,-2)", {"v1": 1.5, "v2": -2.0}, SKIP, [1.5, -2.0])], old=False),
    *(
        Case(type_, "[]", [Value("[(1.5,-2)]", [{"v1": 1.5, "v2": -2.0}], SKIP, [[1.5, -2.0]])], old=False)
        for type_ in ("Ring", "LineString")
    ),
    *(
        Case(
            type_,
            "[]",
            [Value("[[(1,2)]]", [{"value": [{"v1": 1.0, "v2": 2.0}]}], SKIP, [[[1.0, 2.0]]])],
            old=False,
        )
        for type_ in ("Polygon", "MultiLineString")
    ),
    Case(
        "MultiPolygon",
        "[]",
        [Value("[[[(1,2)]]]", [{"value": [{"value": [{"v1": 1.0, "v2": 2.0}]}]}], SKIP, [[[[1.0, 2.0]]]])],
        old=False,
    ),
]
