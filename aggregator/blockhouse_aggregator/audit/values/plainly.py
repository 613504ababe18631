"""What a value of a message means, read by Python's own library, one value at a time: slow, and the work of others.

Nothing here is shared with the aggregator's decoders, so that a mistake of theirs is not repeated. Values come out as
`comparable` takes them: int, float, bytes, Decimal, list, tuple, None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as Number
from ipaddress import IPv4Address, IPv6Address
from typing import Any, assert_never
from uuid import UUID
from zoneinfo import ZoneInfo

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
    Text,
    Tuple,
    Type,
    Unit,
    plain,
)

_MS_OF_A_DAY = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A moment that a message has as such."""

    milliseconds: int


def meaning(value: Any, type_: Type) -> Any:
    """What a column of this type stores for a value that has a kind of its own: bool, int (ticks, for a time), Decimal
    (a number as JSON writes it: seconds), float, str or bytes, Timestamp, list, dict, None.

    Raises ValueError, TypeError, LookupError or ArithmeticError for a value that the type cannot hold."""
    match kind := plain(type_):
        case Nullable(inner=leaf):
            return None if value is None else _leaf(value, leaf)
        case Array(inner=inner):
            return [meaning(item, inner) for item in _of(value, list)]
        case Map(key=key, value=inner):
            return [(meaning(name, key), meaning(item, inner)) for name, item in _of(value, dict).items()]
        case Tuple(names=names, elements=elements):
            items = [value[name] for name in names] if isinstance(value, Mapping) else _of(value, list)
            return tuple(meaning(item, element) for item, element in zip(items, elements, strict=True))
        case Integer() | Float() | Text() | Fixed() | Decimal():
            return _leaf(value, kind)
        case _:
            assert_never(kind)


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} in place of {kind.__name__}")
    return value


def _leaf(value: Any, leaf: Leaf) -> Any:
    text = value.decode() if isinstance(value, bytes) and not isinstance(leaf, Text) else value
    match leaf:
        case Integer():
            return within(_integer(text, leaf), leaf)
        case Float():
            return float(text)
        case Text():
            return value.encode() if isinstance(value, str) else bytes(_of(value, bytes))
        case Fixed(layout=layout):
            return _fixed(text, layout)
        case Decimal():
            return Number(repr(text)) if isinstance(text, float) else Number(text)
        case _:
            assert_never(leaf)


def within(number: int, leaf: Integer) -> int:
    """The number. Raises ValueError for one that the type cannot hold."""
    if not leaf.low <= number <= leaf.high:
        raise ValueError(f"{number} is out of range")
    return number


def _integer(value: Any, leaf: Integer) -> int:
    match leaf.unit:
        case Unit.CODE:
            return dict(leaf.codes)[value] if isinstance(value, str) else _whole(value)
        case Unit.ADDRESS:
            return int(IPv4Address(value)) if isinstance(value, str) else _whole(value)
        case Unit.DAY:
            return _days(value)
        case Unit.TICK:
            return _ticks(value, leaf)
        case Unit.NUMBER:
            return _whole(value)
        case _:
            assert_never(leaf.unit)


def _whole(value: Any) -> int:
    number = int(value)
    if isinstance(value, Number) and number != value:
        raise ValueError(f"{value} is not whole")
    return number


def _fixed(value: Any, layout: Layout) -> bytes:
    match layout:
        case Layout.PADDED:
            return bytes(_of(value, str).encode())
        case Layout.UUID:
            return UUID(value).bytes
        case Layout.ADDRESS:
            return IPv6Address(value).packed
        case Layout.SIGNED | Layout.UNSIGNED:
            return str(_whole(value)).encode()
        case _:
            assert_never(layout)


def _days(value: Any) -> int:
    if isinstance(value, Timestamp):
        return value.milliseconds // _MS_OF_A_DAY
    return (date.fromisoformat(value) - _EPOCH.date()).days if isinstance(value, str) else _whole(value)


def _ticks(value: Any, leaf: Integer) -> int:
    second: int = 10**leaf.precision
    if isinstance(value, Timestamp):
        return value.milliseconds * second // 1000
    if not isinstance(value, str):
        return _whole(value * second) if isinstance(value, Number) else int(value)
    before, _, after = value.partition(".")
    fraction = "".join(character for at, character in enumerate(after) if after[: at + 1].isdigit())
    moment = datetime.fromisoformat(before + after[len(fraction) :])
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(leaf.zone or "UTC"))
    whole = (moment - _EPOCH) // timedelta(seconds=1)
    return whole * second + _whole(Number(f"0.{fraction or 0}") * second)
