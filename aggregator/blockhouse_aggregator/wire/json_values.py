"""What one JSON message means, by the rules written out plainly: the reference that the fast reader must agree with.

Numbers keep their digits until it is known what they are for: 18446744073709551615 and 0.10 lose nothing on the way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal as Number
from typing import Any, NoReturn, assert_never

from blockhouse.schema.kinds import holds_null
from blockhouse.schema.types import (
    Array,
    Decimal,
    Fixed,
    Float,
    Integer,
    Layout,
    Leaf,
    Map,
    Nullable,
    Proto,
    Text,
    Tuple,
    Type,
    Unit,
    plain,
)
from blockhouse_aggregator.wire.texts import BadValue, value_of

_MOST_DIGITS = 400
_RANGES = {True: (-(1 << 63), (1 << 63) - 1), False: (0, (1 << 64) - 1)}


class _Digits(str):
    """A number as it was written."""

    __slots__ = ()


class Undecodable(ValueError):
    """Not JSON, or not an object a line."""


def lines_of(payload: bytes) -> list[dict[str, Any]]:
    """The objects of a message, one a line; empty lines count for nothing. Raises Undecodable."""
    try:
        text = payload.decode()
    except ValueError as error:
        raise Undecodable(str(error)) from error
    lines = (line for part in text.split("\n") if (line := part.strip(" \t\r")))
    return [_object_of(line, row) for row, line in enumerate(lines, 1)]


def _object_of(line: str, row: int) -> dict[str, Any]:
    try:
        found = _DECODER.decode(line)
    except json.JSONDecodeError as error:
        raise Undecodable(f"row {row}, character {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"row {row}: {error or type(error).__name__}") from error
    if not isinstance(found, dict):
        raise Undecodable(f"row {row} is not an object: {type(found).__name__}")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Undecodable("a name stands twice in an object")
    return found


def _constant(name: str) -> NoReturn:
    raise Undecodable(f"{name} is no JSON: send it as a string")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_Digits, parse_float=_Digits, parse_constant=_constant, strict=True
)


def field_of(value: Any, type_: Type) -> Any:
    """The value as a list of `field_type(type_)` holds it. Raises BadValue."""
    kind = plain(type_)
    if value is None:
        if holds_null(kind):
            return None
        raise BadValue("NotNullable")
    match kind:
        case Nullable():
            return _leaf(value, kind.inner)
        case Array(inner=inner):
            return [field_of(item, inner) for item in _instance(value, list)]
        case Map(key=key, value=item):
            leaf = plain(key)
            assert isinstance(leaf, Leaf)
            return [
                {"key": value_of(name, leaf), "value": field_of(found, item)}
                for name, found in _instance(value, dict).items()
            ]
        case Tuple():
            members = list(_members(value, kind))
            return {str(n): field_of(found, of) for n, (found, of) in enumerate(members)}
        case found:
            return _leaf(value, found)


def _members(value: Any, type_: Tuple) -> Iterator[tuple[Any, Type]]:
    """A Tuple is a list, or an object with all of its names."""
    if isinstance(value, Mapping):
        if set(value) != set(type_.names):
            raise BadValue("WrongKind")
        value = [value[name] for name in type_.names]
    if len(_instance(value, list)) != len(type_.elements):
        raise BadValue("WrongKind")
    yield from zip(value, type_.elements, strict=True)


def _instance(value: Any, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    if not isinstance(value, kind):
        raise BadValue("WrongKind")
    return value


def _leaf(value: Any, leaf: Leaf) -> Any:
    if isinstance(value, _Digits):
        return _number(value, leaf)
    if isinstance(value, str):
        if isinstance(leaf, Integer) and leaf.proto is Proto.BOOL:
            raise BadValue("WrongKind")
        return value_of(value, leaf)
    if isinstance(value, bool) and isinstance(leaf, Integer) and leaf.unit is Unit.NUMBER:
        return value if leaf.proto is Proto.BOOL else int(value)
    raise BadValue("WrongKind")


def _number(digits: _Digits, leaf: Leaf) -> Any:
    match leaf:
        case Integer(unit=Unit.TICK, precision=precision):
            return _within(_whole(digits, precision), leaf)
        case Integer(proto=proto):
            number = _within(_whole(digits), leaf)
            if proto is not Proto.BOOL:
                return number
            if number not in (0, 1):
                raise BadValue("OutOfRange")
            return bool(number)
        case Float() | Decimal():
            return value_of(str(digits), leaf)
        case Fixed(layout=(Layout.SIGNED | Layout.UNSIGNED)):
            return value_of(str(_whole(digits)), leaf)
        case Fixed() | Text():
            raise BadValue("WrongKind")
        case _:
            assert_never(leaf)


def _whole(digits: _Digits, shift: int = 0) -> int:
    """The number times 10^shift, which must be whole."""
    number = Number(digits)
    if not number:
        return 0
    if len(digits) > _MOST_DIGITS or not -_MOST_DIGITS < number.adjusted() < _MOST_DIGITS:
        raise BadValue("OutOfRange")
    sign, coefficient, exponent = number.as_tuple()
    power = int(exponent) + shift
    whole = int("".join(map(str, coefficient)))
    if power < 0:
        whole, rest = divmod(whole, 10**-power)
        if rest:
            raise BadValue("BadValue")
    found: int = (-1 if sign else 1) * whole * 10 ** max(power, 0)
    return found


def _within(number: int, leaf: Integer) -> int:
    """A number that its field can hold; whether the column can is judged with all others."""
    low, high = _RANGES[leaf.proto in (Proto.INT32, Proto.INT64)]
    if not low <= number <= high:
        raise BadValue("OutOfRange")
    return number


def rows_of(payload: bytes, types: Mapping[str, Type]) -> Sequence[dict[str, Any]]:
    """The message's rows, with the columns they have, in field form. Raises Undecodable or ColumnValue."""
    rows = []
    for number, line in enumerate(lines_of(payload)):
        row = {}
        for name, value in line.items():
            type_ = types.get(name)
            if type_ is None:
                raise ColumnValue("UnknownColumn", name, number, value)
            try:
                row[name] = field_of(value, type_)
            except BadValue as bad:
                raise ColumnValue(bad.reason, name, number, value) from bad
        rows.append(row)
    return rows


class ColumnValue(BadValue):
    """A `value` that `column` cannot hold, or of a column that the table does not have; `row` counts from 0."""

    def __init__(self, reason: str, column: str, row: int, value: object) -> None:
        super().__init__(reason)
        self.column, self.row, self.value = column, row, value
