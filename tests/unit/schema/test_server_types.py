"""A type that a server does not have is found before anything is run, with the column and what to use instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from blockhouse.schema.ddl import read_declaration
from blockhouse.schema.parse import type_names
from blockhouse.schema.server_types import INSTEAD, lacking

PAGE = Path(__file__).parents[3] / "docs" / "producing.md"
OLD = {"UInt64", "String", "DateTime", "Decimal", "Nullable", "Array", "Enum8"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("UInt8", {"UInt8"}),
        ("Array(Nullable(DateTime64(3, 'UTC')))", {"Array", "Nullable", "DateTime64"}),
        ("Enum8('Map(1)' = 1)", {"Enum8"}),
        ("Tuple(Date32 Int8)", {"Tuple", "Int8"}),
        ("SimpleAggregateFunction(sum, UInt64)", {"SimpleAggregateFunction", "UInt64"}),
        ("Decimal(38, 2)", {"Decimal"}),
        ("Decimal(39, 2)", {"Decimal", "Decimal256"}),
        ("(", set()),
    ],
)
def test_the_types_inside_a_type_are_found(text: str, names: set[str]) -> None:
    assert type_names(text) == names


def test_the_column_the_version_and_what_to_use_are_named() -> None:
    columns = "id UInt64, placed DateTime64(3), tags Array(Map(String, Bool))"
    declared = read_declaration("d.t", f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY id")

    found = list(lacking(declared.columns, "18.16.1", OLD | {"UInt32"}))

    assert found == [
        "column placed is DateTime64(3): ClickHouse 18.16.1 has no type DateTime64; "
        "use DateTime, or Int64 for ticks, or a newer server",
        "column tags is Array(Map(String, Bool)): ClickHouse 18.16.1 has no type Bool; use UInt8, or a newer server",
        "column tags is Array(Map(String, Bool)): ClickHouse 18.16.1 has no type Map; "
        "use two Array columns, or a newer server",
    ]
    assert list(lacking(declared.columns, "26.9.1", OLD | {"UInt32", "DateTime64", "Map", "Bool"})) == []


def test_the_page_states_what_to_use_instead_on_the_oldest_server() -> None:
    rows = re.findall(r"^\| `(\w+)` \| not in 18\.16: (.*) \|$", PAGE.read_text(), re.MULTILINE)

    assert dict(rows) == {name: f"use {instead}" for name, instead in INSTEAD.items()}
