"""What a server may be asked for a DEFAULT, in which order, and what is refused by name."""

from __future__ import annotations

import re

import pytest

from blockhouse.schema.expressions import (
    ROW,
    ROWS,
    TIME,
    TIME_MS,
    in_order,
    not_proven,
    not_repeatable,
    server_expression,
)
from blockhouse.schema.model import Column
from tests.format_messages import history

COLUMNS = {"a": "Int32", "n.b": "Array(UInt8)", "ts": "DateTime", "odd name": "String", "now": "UInt8"}


def column(type_: str, expression: str) -> Column:
    return history({"x": f"{type_} DEFAULT {expression}"}).revisions[0].columns[0]


def known() -> dict[str, Column]:
    return {found.name: found for found in history(COLUMNS).revisions[0].columns}


@pytest.mark.parametrize(
    ("type_", "expression", "asked", "needs"),
    [
        ("Date", "toDate(ts)", "toUInt64(CAST((toDate(ts)), 'Date'))", ("ts",)),
        ("String", "concat('now()', toString(a))", "CAST((concat('now()', toString(a))), 'String')", ("a",)),
        ("LowCardinality(String)", "upper(`odd name`)", "CAST((upper(`odd name`)), 'String')", ("odd name",)),
        ("UInt8", "length(n.b) + now", "toUInt64(CAST((length(n.b) + now), 'UInt8'))", ("n.b", "now")),
        ("Enum8('q' = 1)", "CAST('q', 'Enum8(\\'q\\' = 1)')", None, ()),
        ("DateTime", "now()", f"toUInt64(CAST(({TIME}), 'DateTime'))", ()),
        ("Date", "today() - 1", f"toUInt64(CAST((toDate({TIME}) - 1), 'Date'))", ()),
        (
            "DateTime64(3)",
            "now64()",
            f"reinterpretAsInt64(CAST((fromUnixTimestamp64Milli({TIME_MS})), 'DateTime64(3)'))",
            (),
        ),
        ("Time64(3)", "a", "toInt64(CAST(CAST((a), 'Time64(3)'), 'Decimal128(3)') * 1000)", ("a",)),
        ("Nullable(UUID)", "if(a > 0, NULL, toUUID('x'))", None, ("a",)),
        ("UInt8", "CASE WHEN a = 1 THEN 2 ELSE 3 END", None, ("a",)),
    ],
)
def test_the_server_is_asked_in_its_own_words(
    type_: str, expression: str, asked: str | None, needs: tuple[str, ...]
) -> None:
    found = server_expression(column(type_, expression), known())
    assert found.needs == needs
    assert found.timed == (TIME in found.select or TIME_MS in found.select)
    assert found.select.endswith(f" FROM {ROWS} ORDER BY {ROW}")
    if asked is not None:
        assert found.select == f"SELECT {asked} FROM {ROWS} ORDER BY {ROW}"


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("rand()", "rand"),
        ("generateUUIDv4()", "generateUUIDv4"),
        ("dictGetString('d', 'x', a)", "dictGetString"),
        ("(SELECT 1)", "SELECT"),
        ("a; DROP TABLE t", ";"),
        ("arrayMap(y -> y, n.b)", "arrayMap"),
        ("missing + 1", "missing"),
        ("_kafka_offset", "_kafka_offset"),
        ("now('UTC')", "now with arguments"),
        ("`rand`(a)", "rand"),
        ("{p:UInt8}", "{"),
        ("'unfinished", "cannot be read"),
    ],
)
def test_whatever_could_answer_differently_the_second_time_is_refused_by_name(expression: str, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        server_expression(column("UInt64", expression), known())


def test_defaults_that_need_each_other_are_asked_in_order_and_never_in_a_circle() -> None:
    table = {
        c.name: c
        for c in history({"x": "UInt8 DEFAULT y + 1", "y": "UInt8 DEFAULT z", "z": "UInt8"}).revisions[0].columns
    }
    first, second = (server_expression(table[name], table) for name in "xy")
    assert in_order([first, second]) == (second, first)
    circle = {c.name: c for c in history({"x": "UInt8 DEFAULT y", "y": "UInt8 DEFAULT x"}).revisions[0].columns}
    with pytest.raises(ValueError, match="x, y need each other"):
        in_order([server_expression(found, circle) for found in circle.values()])


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("DateTime MATERIALIZED now()", "now"),
        ("UInt64 MATERIALIZED cityHash64(rand(), 'x')", "rand"),
        ("String MATERIALIZED concat('now', 'x')", ""),
        ("DateTime MATERIALIZED Now()", "Now"),
        ("Date MATERIALIZED CURRENT_DATE()", "CURRENT_DATE"),
        ("UInt64 MATERIALIZED randBernoulli(0.5)", "randBernoulli"),
        ("DateTime ALIAS now()", ""),
    ],
)
def test_a_materialized_column_that_changes_is_found(text: str, function: str) -> None:
    assert not_repeatable(history({"x": text}).revisions[0].columns[0]) == function


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("String MATERIALIZED joinGet('d', 'v', id)", "joinGet"),
        ("String MATERIALIZED upper(dictGetString('d', 'v', id))", "dictGetString"),
        ("String MATERIALIZED getMacro('replica')", "getMacro"),
        ("String MATERIALIZED version()", "version"),
        ("UInt8 MATERIALIZED CAST(length(splitByChar(',', s)) AS UInt8)", ""),
        ("Date MATERIALIZED toDate(ts)", ""),
        ("String MATERIALIZED 'x", "'x"),
        ("String DEFAULT joinGet('d', 'v', id)", ""),
    ],
)
def test_a_materialized_column_that_looks_something_up_is_not_proven(text: str, function: str) -> None:
    assert not_proven(history({"x": text}).revisions[0].columns[0]) == function
