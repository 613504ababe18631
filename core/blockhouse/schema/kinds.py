"""Questions about a type that more than one module asks, each answered once for every kind.

A new kind of `types.py` has to get its answer here: none is taken for another. Pure; asked once a column, never a row.
"""

from __future__ import annotations

from typing import assert_never

from blockhouse.schema.types import (
    Array,
    Bare,
    Decimal,
    Fixed,
    Float,
    Integer,
    LowCardinality,
    Map,
    Nullable,
    Text,
    Tuple,
    Type,
)


def bare(type_: Type) -> Bare:
    """The type of the values that are not NULL, without LowCardinality."""
    match type_:
        case LowCardinality(inner=inner) | Nullable(inner=inner):
            return bare(inner)
        case Integer() | Float() | Text() | Fixed() | Decimal() | Array() | Map() | Tuple():
            return type_
        case _:
            assert_never(type_)


def holds_null(type_: Type) -> bool:
    """Whether NULL is a value of the type itself (not only of its elements)."""
    match type_:
        case Nullable():
            return True
        case LowCardinality(inner=inner):
            return holds_null(inner)
        case Integer() | Float() | Text() | Fixed() | Decimal() | Array() | Map() | Tuple():
            return False
        case _:
            assert_never(type_)


def is_repeated(type_: Type) -> bool:
    """Whether protobuf has a repeated field for it, which cannot be absent: that is an empty list."""
    match type_:
        case LowCardinality(inner=inner):
            return is_repeated(inner)
        case Array() | Map():
            return True
        case Integer() | Float() | Text() | Fixed() | Decimal() | Nullable() | Tuple():
            return False
        case _:
            assert_never(type_)


def is_wrapped(element: Type) -> bool:
    """Whether an element of this type travels in a message with the one field `value`: a repeated field of protobuf can
    hold neither lists nor absent values."""
    return holds_null(element) or is_repeated(element)
