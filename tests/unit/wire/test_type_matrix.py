"""The matrix of types has every type there is: one without a case is tested by nothing, the audit's test included."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import blockhouse.schema.parse as parser
from blockhouse.schema import types
from blockhouse.schema.parse import parse_type
from blockhouse.schema.types import (
    PLAIN,
    Array,
    Fixed,
    Integer,
    Layout,
    LowCardinality,
    Map,
    Nullable,
    Tuple,
    Type,
    Unit,
)
from tests.type_cases import CASES
from tests.type_values import SKIP, Case

ANOTHER_NAME = {"DateTime": "DateTime('UTC')"}
"""Shown by the server in a zone of its own; the case that stands for it."""

SPELLED_OTHERWISE = {"Decimal32", "Decimal64", "Decimal128", "Decimal256", "Nested"}
"""A Decimal of 9, 18, 38 or 76 digits, and an Array of a Tuple."""


def parts(type_: Type) -> Iterator[Type]:
    """The type and all that it contains."""
    yield type_
    match type_:
        case Nullable(inner=inner) | LowCardinality(inner=inner) | Array(inner=inner):
            yield from parts(inner)
        case Map(key=key, value=value):
            yield from parts(key)
            yield from parts(value)
        case Tuple(elements=elements):
            for element in elements:
                yield from parts(element)
        case _:
            return


NAMES = {case.type for case in CASES}
PARTS = [part for case in CASES for part in parts(parse_type(case.type))]


def test_every_name_of_a_type_has_a_case() -> None:
    assert {ANOTHER_NAME.get(name, name) for name in PLAIN} <= NAMES


def test_every_family_that_the_parser_knows_has_a_case() -> None:
    """By the names in the parser's own text, so that one more is noticed."""
    patterns = re.findall(r"^ +case (.*):$", Path(parser.__file__).read_text(), re.M)
    families = set(re.findall(r'"([A-Z][A-Za-z0-9]*)"', " ".join(patterns))) - SPELLED_OTHERWISE - ANOTHER_NAME.keys()
    assert {"FixedString", "Decimal", "Enum8", "Nullable", "Array"} <= families, "the parser was not understood"
    words = {word for name in NAMES for word in re.findall(r"[A-Z][A-Za-z0-9]*", name)}
    assert families - words == set()


def test_every_kind_unit_and_layout_has_a_case() -> None:
    kinds = {kind.__name__ for kind in types.Type.__args__}
    assert {type(part).__name__ for part in PARTS} == kinds
    assert {part.unit for part in PARTS if isinstance(part, Integer)} == set(Unit)
    assert {part.layout for part in PARTS if isinstance(part, Fixed)} == set(Layout)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.type)
def test_every_case_has_a_value_that_another_one_in_its_place_differs_from(case: Case) -> None:
    """Else a wrong value could not be distinguished from a right one, and the audit's test would pass of itself."""
    shown = {value.shown for value in case.good if value.rows is not SKIP}
    assert len(shown | {case.default[1] if case.default else case.zero}) > 1
