"""The form in which a sent and a stored value are compared: Arrow arrays, of which equal values are equal bytes.

integers, Bool, Date, DateTime, Enum, IPv4   the number that is stored: days, seconds or ticks, an Enum's number
Float32, Float64                             the bits of the number, in 64 bits; every NaN is the same NaN
String, FixedString                          bytes; FixedString with its zero bytes
UUID, IPv6                                   16 bytes in network order
Int128 and wider, Decimal                    plain digits, without zeros at the end of a fraction
Array, Map, Tuple                            lists and structs of these, in the order that is stored
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal as Number
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
    plain,
)

Mask = npt.NDArray[np.bool_]
_NAN = np.array([np.nan]).view(np.int64)[0]


def comparable(values: Sequence[Any], type_: Type) -> pa.Array:
    """Python values as `plainly` and `stored` give them: numbers, bytes, Decimals, lists, tuples and None."""
    match kind := plain(type_):
        case Nullable(inner=leaf):
            return _leaves(values, leaf)
        case Array(inner=inner):
            return _lists(values, inner)
        case Map(key=key, value=value):
            return _lists(values, Tuple(("key", "value"), (key, value)))
        case Tuple(elements=elements):
            columns = list(zip(*values, strict=True)) if values else [()] * len(elements)
            found = [comparable(column, element) for column, element in zip(columns, elements, strict=True)]
            return pa.StructArray.from_arrays(found, names=[str(number) for number in range(len(elements))])
        case Integer() | Float() | Text() | Fixed() | Decimal():
            return _leaves(values, kind)
        case _:
            assert_never(kind)


def different(expected: pa.Array, found: pa.Array) -> Mask:
    """Which rows differ; both from `comparable`, of one type and length."""
    if pa.types.is_struct(expected.type):
        pairs = zip(expected.flatten(), found.flatten(), strict=True)
        members: Mask = np.logical_or.reduce([different(*pair) for pair in pairs])
        return members
    if pa.types.is_list(expected.type):
        return _different_lists(expected, found)
    both: Mask = pc.equal(expected, found).fill_null(False).to_numpy(zero_copy_only=False)
    null: Mask = pc.and_(expected.is_null(), found.is_null()).to_numpy(zero_copy_only=False)
    return ~(both | null)


def _different_lists(expected: pa.ListArray, found: pa.ListArray) -> Mask:
    lengths, others = (pc.list_value_length(lists).to_numpy() for lists in (expected, found))
    differ: Mask = lengths != others
    same = pa.array(np.flatnonzero(~differ))
    items = different(expected.take(same).flatten(), found.take(same).flatten())
    row_of = np.repeat(np.flatnonzero(~differ), lengths[~differ])
    differ[row_of[items]] = True
    return differ


def _lists(values: Sequence[Sequence[Any]], inner: Type) -> pa.Array:
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    items = comparable([item for value in values for item in value], inner)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)


def _leaves(values: Sequence[Any], leaf: Leaf) -> pa.Array:
    match leaf:
        case Integer(storage=storage):
            return pa.array(values, pa.uint64() if storage.startswith("u") else pa.int64())
        case Float(storage=storage):
            return _bits(pa.array(values, pa.float64()), storage)
        case Text():
            return pa.array(values, pa.binary())
        case Fixed(layout=Layout.PADDED, size=size):
            return pa.array([None if value is None else value.ljust(size, b"\0") for value in values], pa.binary())
        case Fixed():
            return pa.array(values, pa.binary())
        case Decimal():
            return pa.array([None if value is None else _digits(value) for value in values], pa.string())
        case _:
            assert_never(leaf)


def _bits(numbers: pa.Array, storage: str) -> pa.Array:
    values = numbers.fill_null(0.0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        stored = values.astype(storage).astype(np.float64)
    bits = np.where(np.isnan(stored), _NAN, stored.view(np.int64))
    return pa.array(bits, mask=numbers.is_null().to_numpy(zero_copy_only=False))


def _digits(number: Number) -> str:
    text = f"{number:f}" if number else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text
