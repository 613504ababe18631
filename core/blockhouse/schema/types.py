"""What a ClickHouse type is to this project: THE table of types, and the parser of their spelling.

Everything that depends on a type (the protobuf field, the range check, the Arrow column, the Native bytes, the
documentation) is derived from the values made here: a type of an existing kind (`Integer`, `Fixed`, ...) is one line of
`PLAIN`. A new kind is added to `Leaf`, `Bare` or `Plain`; from then on mypy refuses every match that has no answer for
it, and `tests/unit/schema/test_closed_types.py` sees to it that each match is of this sort. Must never touch rows or a
client library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from string import ascii_lowercase
from typing import assert_never


class Proto(StrEnum):
    """The protobuf scalar a value travels as."""

    BOOL = "bool"
    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"


class Unit(StrEnum):
    """What an integer counts: decides how a text that stands for it is read."""

    NUMBER = "number"
    DAY = "day"
    TICK = "tick"
    """10^-precision seconds."""
    ADDRESS = "address"
    CODE = "code"


class Layout(StrEnum):
    """How the bytes of a message become the `size` bytes that ClickHouse stores."""

    PADDED = "padded"
    """Shorter values are filled up with zero bytes."""
    UNSIGNED = "unsigned"
    """A number of exactly `size` bytes, least significant first."""
    SIGNED = "signed"
    """The same in two's complement."""
    ADDRESS = "address"
    """Exactly 16 bytes in network order, stored as they come."""
    UUID = "uuid"
    """Exactly 16 bytes in network order (RFC 9562); ClickHouse stores each half with its bytes reversed."""


@dataclass(frozen=True, slots=True)
class Integer:
    """A number stored as `storage` (numpy's name of it). Values outside [low, high], or not in `codes`, are refused."""

    proto: Proto
    storage: str
    low: int
    high: int
    meaning: str = ""
    unit: Unit = Unit.NUMBER
    precision: int = 0
    zone: str = ""
    codes: tuple[tuple[str, int], ...] = ()
    zero: int = 0


@dataclass(frozen=True, slots=True)
class Float:
    """A binary floating-point number stored as `storage` (numpy's name of it)."""

    proto: Proto
    storage: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Text:
    """Any bytes of any length: ClickHouse's String promises no encoding, hence protobuf's `bytes`."""

    proto: Proto = Proto.BYTES
    meaning: str = "any bytes"


@dataclass(frozen=True, slots=True)
class Fixed:
    """Exactly `size` bytes, made from a message's bytes as `layout` describes."""

    size: int
    layout: Layout
    meaning: str
    proto: Proto = Proto.BYTES


@dataclass(frozen=True, slots=True)
class Decimal:
    """`precision` decimal digits, `scale` of them after the point; stored as an integer of `size` bytes."""

    precision: int
    scale: int
    proto: Proto = Proto.STRING

    @property
    def meaning(self) -> str:
        whole, fraction = "12"[: self.precision - self.scale] or "0", f".{'50'[: self.scale]}".rstrip(".")
        return f"decimal text such as -{whole}{fraction}, at most {self.scale} digits after the point"

    @property
    def size(self) -> int:
        return next(size for digits, size in ((9, 4), (18, 8), (38, 16), (76, 32)) if self.precision <= digits)


@dataclass(frozen=True, slots=True)
class Nullable:
    """A leaf, or NULL: absent in protobuf, null in Arrow."""

    inner: Leaf


@dataclass(frozen=True, slots=True)
class LowCardinality:
    """A dictionary in ClickHouse; to a producer the same as its inner type."""

    inner: Leaf | Nullable


@dataclass(frozen=True, slots=True)
class Array:
    """Any number of values of one type; never NULL itself."""

    inner: Type


@dataclass(frozen=True, slots=True)
class Map:
    """Pairs of a key, which is a leaf, and a value; a list of such pairs in Arrow."""

    key: Type
    value: Type


@dataclass(frozen=True, slots=True)
class Tuple:
    """`names` are the elements' own names, or "1", "2", ... when ClickHouse gives none."""

    names: tuple[str, ...]
    elements: tuple[Type, ...]


Leaf = Integer | Float | Text | Fixed | Decimal
Bare = Leaf | Array | Map | Tuple
Plain = Bare | Nullable
Type = Plain | LowCardinality

# Date32 and DateTime64 end where ClickHouse's calendar ends: 1900-01-01 to 2299-12-31.
_FIRST_DAY, _LAST_DAY = -25_567, 120_529
_FIRST_SECOND, _LAST_SECOND = _FIRST_DAY * 86_400, (_LAST_DAY + 1) * 86_400 - 1

_LONGEST = 999 * 3_600 + 59 * 60 + 59
"""Seconds in a Time."""


def _signed(bits: int, proto: Proto) -> Integer:
    return Integer(proto, f"int{bits}", -(1 << bits - 1), (1 << bits - 1) - 1)


def _unsigned(bits: int, proto: Proto, meaning: str = "", unit: Unit = Unit.NUMBER) -> Integer:
    return Integer(proto, f"uint{bits}", 0, (1 << bits) - 1, meaning, unit)


def _wide(size: int, layout: Layout) -> Fixed:
    return Fixed(size, layout, f"{size} bytes, least significant first, {layout}")


def date_time(zone: str = "") -> Integer:
    unsigned = _unsigned(32, Proto.UINT32, "seconds since 1970-01-01 UTC", Unit.TICK)
    return replace(unsigned, zone=zone)


_POINT = Tuple(("1", "2"), (Float(Proto.DOUBLE, "float64", ""), Float(Proto.DOUBLE, "float64", "")))

PLAIN: Mapping[str, Type] = {
    "UInt8": _unsigned(8, Proto.UINT32),
    "UInt16": _unsigned(16, Proto.UINT32),
    "UInt32": _unsigned(32, Proto.UINT32),
    "UInt64": _unsigned(64, Proto.UINT64),
    "UInt128": _wide(16, Layout.UNSIGNED),
    "UInt256": _wide(32, Layout.UNSIGNED),
    "Int8": _signed(8, Proto.INT32),
    "Int16": _signed(16, Proto.INT32),
    "Int32": _signed(32, Proto.INT32),
    "Int64": _signed(64, Proto.INT64),
    "Int128": _wide(16, Layout.SIGNED),
    "Int256": _wide(32, Layout.SIGNED),
    "Float32": Float(Proto.FLOAT, "float32", "NaN and infinities pass"),
    "Float64": Float(Proto.DOUBLE, "float64", "NaN and infinities pass"),
    "Bool": Integer(Proto.BOOL, "uint8", 0, 1),
    "String": Text(),
    "UUID": Fixed(16, Layout.UUID, "16 bytes in network order"),
    "Date": Integer(Proto.UINT32, "uint16", 0, 65_535, "days since 1970-01-01", Unit.DAY),
    "Date32": Integer(Proto.INT32, "int32", _FIRST_DAY, _LAST_DAY, "days since 1970-01-01", Unit.DAY, zero=_FIRST_DAY),
    "DateTime": date_time(),
    "Time": Integer(Proto.INT32, "int32", -_LONGEST, _LONGEST, "seconds, -999:59:59 to 999:59:59"),
    "IPv4": _unsigned(32, Proto.UINT32, "the address as a number: 127.0.0.1 is 2130706433", Unit.ADDRESS),
    "IPv6": Fixed(16, Layout.ADDRESS, "16 bytes in network order"),
    "Point": _POINT,
    "Ring": Array(_POINT),
    "LineString": Array(_POINT),
    "MultiLineString": Array(Array(_POINT)),
    "Polygon": Array(Array(_POINT)),
    "MultiPolygon": Array(Array(Array(_POINT))),
}
"""Types without parameters."""

DECIMAL_DIGITS: Mapping[str, int] = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38, "Decimal256": 76}


def date_time_64(precision: int, zone: str = "") -> Integer:
    """Ticks of 10^-precision seconds, in the server's calendar as far as 64 bits reach."""
    ticks = 10**precision
    return Integer(
        Proto.INT64,
        "int64",
        max(_FIRST_SECOND * ticks, -(1 << 63)),
        min(_LAST_SECOND * ticks + ticks - 1, (1 << 63) - 1),
        f"ticks of {'1 s' if precision == 0 else f'10^-{precision} s'} since 1970-01-01 UTC",
        Unit.TICK,
        precision,
        zone,
    )


def time_64(precision: int) -> Integer:
    """A span or a time of day in ticks of 10^-precision seconds, as long as `Time` allows."""
    longest = (_LONGEST + 1) * 10**precision - 1
    unit = "1 s" if precision == 0 else f"10^-{precision} s"
    meaning = f"ticks of {unit}, -999:59:59 to 999:59:59"
    return Integer(Proto.INT64, "int64", -longest, longest, meaning, precision=precision)


def enum(bits: int, codes: tuple[tuple[str, int], ...]) -> Integer:
    numbers = [code for _, code in codes]
    meaning = ", ".join(f"{code} = {name}" for name, code in sorted(codes, key=lambda pair: pair[1]))
    return Integer(
        Proto.INT32, f"int{bits}", min(numbers), max(numbers), meaning, Unit.CODE, codes=codes, zero=min(numbers)
    )


def plain(type_: Type) -> Plain:
    """The type without LowCardinality, which only ClickHouse's storage and the Native format know."""
    return type_.inner if isinstance(type_, LowCardinality) else type_


def least_bytes(type_: Type) -> int:
    """What every value takes in ClickHouse's Native format at least: all of it where the type has a fixed width."""
    match type_:
        case Integer(storage=storage) | Float(storage=storage):
            return int(storage.lstrip(ascii_lowercase)) // 8
        case Text():
            return 1
        case Fixed(size=size):
            return size
        case Decimal():
            return type_.size
        case Nullable(inner=inner):
            return 1 + least_bytes(inner)
        case LowCardinality():
            return 1
        case Array() | Map():
            return 8
        case Tuple(elements=elements):
            return sum(map(least_bytes, elements))
        case _:
            assert_never(type_)


def zero(type_: Type) -> int | float | bytes | str | None:
    """What ClickHouse stores in a leaf that was not filled: for an Enum its lowest number. None is NULL."""
    match plain(type_):
        case Integer(zero=number):
            return number
        case Float():
            return 0.0
        case Text():
            return b""
        case Fixed(size=size):
            return bytes(size)
        case Decimal():
            return "0"
        case Nullable() | Array() | Map() | Tuple():
            return None
        case unreachable:
            assert_never(unreachable)
