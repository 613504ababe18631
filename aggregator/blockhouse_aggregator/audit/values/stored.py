"""How a stored value is read: cast in the server to the number or the bytes it stores, whatever it looks like.

So a time zone, the name of an Enum or the spelling of an address cannot hide a difference, nor make one.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal as Number
from typing import Any, assert_never

from blockhouse.schema.types import (
    Array,
    Decimal,
    Fixed,
    Float,
    Integer,
    Layout,
    Leaf,
    LowCardinality,
    Map,
    Nullable,
    Text,
    Tuple,
    Type,
    Unit,
    plain,
)


def stored_as(sql: str, type_: Type, depth: int = 0) -> str:
    """The expression that gives what the expression `sql` of this type stores."""
    item, other = f"_x{depth}", f"_y{depth}"
    match type_:
        case LowCardinality(inner=inner):
            return stored_as(sql, inner, depth)
        case Nullable(inner=leaf):
            return _leaf(sql, leaf, nullable=True)
        case Array(inner=inner):
            return f"arrayMap({item} -> {stored_as(item, inner, depth + 1)}, {sql})"
        case Map(key=key, value=value):
            pair = f"tuple({stored_as(item, key, depth + 1)}, {stored_as(other, value, depth + 1)})"
            return f"arrayMap(({item}, {other}) -> {pair}, mapKeys({sql}), mapValues({sql}))"
        case Tuple(elements=elements):
            members = (
                stored_as(f"tupleElement({sql}, {number})", element, depth)
                for number, element in enumerate(elements, start=1)
            )
            return f"tuple({', '.join(members)})"
        case Integer() | Float() | Text() | Fixed() | Decimal():
            return _leaf(sql, type_, nullable=False)
        case _:
            assert_never(type_)


def _leaf(sql: str, leaf: Leaf, *, nullable: bool) -> str:
    match leaf:
        case Integer(unit=Unit.TICK, storage="int64"):
            return f"reinterpretAsInt64({sql})"
        case Integer(storage="int64", precision=digits) if digits:  # a Time64, of which toInt64 gives whole seconds
            number = f"Decimal128({digits})"
            return f"toInt64(CAST({sql}, '{f'Nullable({number})' if nullable else number}') * {10**digits})"
        case Integer(unit=Unit.CODE, storage=storage):
            number = storage.replace("int", "Int")
            return f"CAST({sql}, '{f'Nullable({number})' if nullable else number}')"
        case Integer(unit=Unit.ADDRESS):
            return f"toUInt32({sql})"
        case Integer(storage=storage):
            return f"toInt64({sql})" if storage.startswith("int") else f"toUInt64({sql})"
        case Float():
            return f"toFloat64({sql})"
        case Text() | Fixed(layout=Layout.PADDED):
            return sql
        case Fixed(layout=Layout.UUID):
            return f"UUIDStringToNum(toString({sql}))"
        case Fixed(layout=Layout.ADDRESS):
            return f"IPv6StringToNum(toString({sql}))"
        case Fixed() | Decimal():
            return f"toString({sql})"
        case _:
            assert_never(leaf)


def values_of(answers: Sequence[Any], type_: Type) -> list[Any]:
    """What the server answered to `stored_as`, as `comparable` takes it."""
    kind = plain(type_)
    return list(answers) if not _has_decimal(kind) else [_value(answer, kind) for answer in answers]


def _has_decimal(type_: Type) -> bool:
    match kind := plain(type_):
        case Decimal():
            return True
        case Nullable(inner=leaf):
            return _has_decimal(leaf)
        case Array(inner=inner):
            return _has_decimal(inner)
        case Map(key=key, value=value):
            return _has_decimal(key) or _has_decimal(value)
        case Tuple(elements=elements):
            return any(map(_has_decimal, elements))
        case Integer() | Float() | Text() | Fixed():
            return False
        case _:
            assert_never(kind)


def _value(answer: Any, type_: Type) -> Any:
    match kind := plain(type_):
        case Nullable(inner=leaf):
            return None if answer is None else _value(answer, leaf)
        case Decimal():
            return Number(answer.decode())
        case Array(inner=inner):
            return [_value(item, inner) for item in answer]
        case Map(key=key, value=value):
            return [(_value(first, key), _value(second, value)) for first, second in answer]
        case Tuple(elements=elements):
            return tuple(_value(item, element) for item, element in zip(answer, elements, strict=True))
        case Integer() | Float() | Text() | Fixed():
            return answer
        case _:
            assert_never(kind)
