"""One Python value becomes what its protobuf field takes: dates, addresses, enum names, decimals, UUIDs.

Strict where ClickHouse would be lenient: a value that does not fit its column is refused here, before it is sent,
for the aggregator could only dead-letter it. Pure.
"""

from __future__ import annotations

import datetime as dt
import decimal
import ipaddress
import uuid
from typing import Any, assert_never

from blockhouse.schema.types import Decimal, Fixed, Float, Integer, Layout, Leaf, Text, Unit

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)

_EXPECTED = {
    Unit.NUMBER: "int",
    Unit.DAY: "datetime.date, or int: days since 1970-01-01",
    Unit.TICK: "datetime.datetime with a time zone, or int: ticks since 1970-01-01 UTC",
    Unit.ADDRESS: "str, ipaddress.IPv4Address or int",
    Unit.CODE: "str or int: a name or number of the Enum",
}

Scalar = int | float | str | bytes | bool


def scalar(type_: Leaf, value: object) -> Scalar:
    """The protobuf scalar for `value`. Raises ValueError or TypeError, naming what was expected instead."""
    match type_:
        case Integer():
            return _integer(type_, value)
        case Float():
            return float(_instance(value, (int, float)))
        case Text():
            return value.encode() if isinstance(value, str) else bytes(_instance(value, (str, bytes, bytearray)))
        case Fixed():
            return _fixed(type_, value)
        case Decimal():
            return _decimal(type_, value)
        case _:
            assert_never(type_)


def _integer(type_: Integer, value: object) -> int | bool:
    number = _number(type_, value)
    if not type_.low <= number <= type_.high:
        raise ValueError(f"{value!r} is outside {type_.low}..{type_.high}")
    codes = {code for _, code in type_.codes}
    if codes and number not in codes:
        raise ValueError(f"{value!r} is none of {', '.join(f'{name} = {code}' for name, code in type_.codes)}")
    return bool(number) if type_.proto == "bool" else number


def _number(type_: Integer, value: object) -> int:
    if isinstance(value, int):
        return value
    match type_.unit:
        case Unit.DAY if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return value.toordinal() - _EPOCH_DAY
        case Unit.TICK if isinstance(value, dt.datetime):
            if value.tzinfo is None:
                raise ValueError(f"{value} has no time zone: state which one is meant")
            return int((value - _EPOCH) // _MICROSECOND * 10**type_.precision // 10**6)
        case Unit.ADDRESS if isinstance(value, ipaddress.IPv4Address | str):
            return int(ipaddress.IPv4Address(value))
        case Unit.CODE if isinstance(value, str):
            if value not in dict(type_.codes):
                raise ValueError(f"{value!r} is none of {', '.join(name for name, _ in type_.codes)}")
            return dict(type_.codes)[value]
        case Unit.NUMBER | Unit.DAY | Unit.TICK | Unit.ADDRESS | Unit.CODE:
            pass
        case unreachable:
            assert_never(unreachable)
    raise TypeError(f"{type(value).__name__} was given, expected {_EXPECTED[type_.unit]}")


def _fixed(type_: Fixed, value: object) -> bytes:
    match type_.layout:
        case Layout.UUID if isinstance(value, uuid.UUID | str):
            return value.bytes if isinstance(value, uuid.UUID) else uuid.UUID(value).bytes
        case Layout.ADDRESS if isinstance(value, ipaddress.IPv6Address | str):
            return ipaddress.IPv6Address(value).packed
        case Layout.UNSIGNED | Layout.SIGNED if isinstance(value, int):
            return value.to_bytes(type_.size, "little", signed=type_.layout is Layout.SIGNED)
        case Layout.PADDED if isinstance(value, str):
            value = value.encode()
        case Layout.UUID | Layout.ADDRESS | Layout.UNSIGNED | Layout.SIGNED | Layout.PADDED:
            pass  # bytes, as they are stored
        case unreachable:
            assert_never(unreachable)
    data = bytes(_instance(value, (bytes, bytearray)))
    if len(data) > type_.size or (type_.layout is not Layout.PADDED and len(data) != type_.size):
        raise ValueError(f"{len(data)} bytes do not fit {type_.size}")
    return data


def _decimal(type_: Decimal, value: object) -> str:
    number = decimal.Decimal(_instance(value, (decimal.Decimal, int, str)))
    if not number.is_finite():
        raise ValueError(f"{value!r} is no decimal number")
    digits, exponent = number.as_tuple().digits, int(number.as_tuple().exponent)
    if -exponent > type_.scale or len(digits) + exponent > type_.precision - type_.scale:
        raise ValueError(f"{value!r} does not fit {type_.precision} digits, {type_.scale} of them after the point")
    return format(number, "f")


def _instance(value: Any, kinds: tuple[type, ...]) -> Any:
    if not isinstance(value, kinds):
        raise TypeError(f"{type(value).__name__} was given, expected {' or '.join(kind.__name__ for kind in kinds)}")
    return value
