"""One field as protobuf gave it, to the column as ClickHouse stores it, and which of its rows must not be stored.

Everything here is vectorised over the rows of a batch, and judges each row by itself: the verdict on one never depends
on its neighbours. Must never let a value through changed: what does not fit its type makes the row bad.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal as Number
from functools import cache
from typing import assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blockhouse.schema.kinds import holds_null, is_wrapped
from blockhouse.schema.text import decimal_of_text
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
    plain,
    zero,
)
from blockhouse_aggregator.wire.arrow import arrow_type

Mask = npt.NDArray[np.bool_]
Fill = int | float | bytes | str | None
"""What stands in an absent field, in the form a message would send it. None is NULL."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """Rows that must not be stored, and why (CamelCase)."""

    rows: Mask
    reason: str


@dataclass(frozen=True, slots=True)
class Column:
    """`values` in `arrow_type`. Of a row with several flaws the first one is its reason."""

    values: pa.Array
    flaws: tuple[Flaw, ...] = ()


def field_type(type_: Type) -> pa.DataType:
    """The Arrow type of a field as `read_column` takes it; protobuf may wrap elements of lists in a message."""
    match plain(type_):
        case Integer(proto=Proto.BOOL):
            return pa.bool_()
        case Integer(proto=proto):
            return pa.int64() if proto in (Proto.INT32, Proto.INT64) else pa.uint64()
        case Float(storage=storage):
            return pa.float32() if storage == "float32" else pa.float64()
        case Text() | Fixed():
            return pa.binary()
        case Decimal():
            return pa.string()
        case Nullable(inner=leaf):
            return field_type(leaf)
        case Array(inner=inner):
            return pa.list_(field_type(inner))
        case Map(key=key, value=value):
            return pa.list_(pa.struct([("key", field_type(key)), ("value", field_type(value))]))
        case Tuple(elements=elements):
            return pa.struct([(str(n), field_type(element)) for n, element in enumerate(elements)])
        case unreachable:
            assert_never(unreachable)


def read_column(field: pa.Array, type_: Type, fill: Fill) -> Column:
    """`field` is null where the message has no value: that is `fill`, and an empty list."""
    match kind := plain(type_):
        case Nullable(inner=leaf):
            return _read_leaf(field, leaf, fill)
        case Array(inner=inner):
            return _read_array(field, inner)
        case Map(key=key, value=value):
            return _read_list(field, lambda entries: _read_struct(entries, (key, value), ("key", "value")), kind)
        case Tuple(elements=elements):
            return _read_struct(field, elements, tuple(str(n) for n in range(len(elements))))
        case leaf:
            return _read_leaf(field, leaf, fill)


def stand_in(fill: Fill, type_: pa.DataType) -> pa.Scalar:
    """What stands in an absent field of this Arrow type."""
    return pa.scalar(Number(fill) if isinstance(fill, str) and pa.types.is_decimal(type_) else fill, type_)


def _read_element(field: pa.Array, type_: Type) -> Column:
    """An element of a list, which cannot be absent: null is a value, and only a Nullable can hold it."""
    if not field.null_count or holds_null(type_):
        return read_column(field, type_, None)
    null: Mask = field.is_null().to_numpy(zero_copy_only=False)
    found = read_column(field, type_, zero(type_))
    return Column(found.values, (Flaw(null, "NotNullable"), *found.flaws))


def _read_leaf(field: pa.Array, type_: Leaf, fill: Fill) -> Column:
    if pa.types.is_boolean(field.type):
        field = field.cast(pa.uint8())
    if field.null_count and fill is not None:
        field = field.fill_null(stand_in(fill, field.type))
    match type_:
        case Integer():
            return _read_integer(field, type_)
        case Float():
            return Column(field)
        case Text():
            return Column(field)
        case Fixed():
            return _read_fixed(field, type_)
        case Decimal():
            return _read_decimal(field, type_)
        case _:
            assert_never(type_)


def _read_integer(field: pa.Array, type_: Integer) -> Column:
    expected = arrow_type(type_)
    if field.type == expected and (type_.low, type_.high) == _limits(expected):
        return Column(field)
    gaps = len(type_.codes) not in (0, type_.high - type_.low + 1)
    if not gaps and _within(field, type_.low, type_.high):
        return Column(_narrowed(field, expected))
    known = field.fill_null(type_.zero).to_numpy()
    if type_.codes:
        bad = ~np.isin(known, np.array([code for _, code in type_.codes]))
    else:
        bad = (known < max(type_.low, _limits(field.type)[0])) | (known > min(type_.high, _limits(field.type)[1]))
    return _without(
        field, bad, pa.scalar(type_.zero, field.type), expected, "UnknownEnumValue" if type_.codes else "OutOfRange"
    )


def _within(field: pa.Array, low: int, high: int) -> bool:
    if field.null_count or not len(field):
        seen = pc.min_max(field)
        least, most = seen["min"].as_py(), seen["max"].as_py()
        return least is None or bool(low <= least and most <= high)
    # Without nulls numpy is faster by far on few rows.
    values = field.to_numpy()
    return bool(low <= values.min() and values.max() <= high)


def _narrowed(field: pa.Array, expected: pa.DataType) -> pa.Array:
    """The field in the column's type, which holds all its values."""
    if field.type == expected:
        return field
    if field.null_count:
        return field.cast(expected, safe=False)
    return pa.array(field.to_numpy().astype(expected.to_pandas_dtype()))


@cache
def _limits(type_: pa.DataType) -> tuple[int, int]:
    info = np.iinfo(type_.to_pandas_dtype())
    return int(info.min), int(info.max)


def _without(field: pa.Array, bad: Mask, instead: pa.Scalar, expected: pa.DataType, reason: str) -> Column:
    """The column with a stand-in wherever a value is bad, so that the rest can be converted."""
    if not bad.any():
        return Column(field.cast(expected, safe=False))
    return Column(pc.if_else(pa.array(bad), instead, field).cast(expected, safe=False), (Flaw(bad, reason),))


def _read_fixed(field: pa.BinaryArray, type_: Fixed) -> Column:
    lengths = pc.binary_length(field)
    seen = pc.min_max(lengths)
    least, most = seen["min"].as_py(), seen["max"].as_py()
    if least is None or (least == most == type_.size):
        return Column(field.cast(pa.binary(type_.size)))
    sizes = lengths.fill_null(type_.size).to_numpy()
    bad: Mask = sizes > type_.size if type_.layout is Layout.PADDED else sizes != type_.size
    if bad.any():
        field = pc.if_else(pa.array(bad), pa.scalar(b"", field.type), field)
    return Column(_pad(field, type_.size), (Flaw(bad, "WrongLength"),) if bad.any() else ())


def _pad(field: pa.BinaryArray, size: int) -> pa.FixedSizeBinaryArray:
    """Every value (none longer than `size`) filled up with zero bytes."""
    lengths = pc.binary_length(field).fill_null(0).to_numpy()
    padding = np.zeros(len(field) + 1, np.int32)
    np.cumsum(size - lengths, out=padding[1:])
    zeros = pa.py_buffer(bytes(int(padding[-1])))
    tails = pa.Array.from_buffers(pa.binary(), len(field), [None, pa.py_buffer(padding), zeros])
    joined = pc.binary_join_element_wise(field.fill_null(b""), tails, pa.scalar(b"", pa.binary()))
    return pc.if_else(field.is_valid(), joined, pa.scalar(None, pa.binary())).cast(pa.binary(size))


def _read_decimal(field: pa.Array, type_: Decimal) -> Column:
    if pa.types.is_decimal(field.type):
        return Column(field)
    # Arrow would refuse the whole batch for one value, and rounds what does not fit: the text is judged first.
    digits, scale = type_.precision - type_.scale, type_.scale
    text = rf"^[+-]?0*[0-9]{{0,{digits}}}(\.[0-9]{{0,{scale}}})?$"
    fits = pc.and_(pc.match_substring_regex(field, text), pc.match_substring_regex(field, "[0-9]"))
    bad = ~fits.fill_null(True).to_numpy(zero_copy_only=False)
    if bad.any():
        field, bad = _spelt_plainly(field, bad, type_)
    return _without(field, bad, pa.scalar("0", field.type), arrow_type(type_), "NotADecimal")


def _spelt_plainly(field: pa.Array, odd: Mask, type_: Decimal) -> tuple[pa.Array, Mask]:
    """The texts, the odd ones as plain digits where they stand for a number that fits (Java writes `0E-8` for a zero of
    eight digits), and which of them do not."""
    encoded = field.filter(pa.array(odd)).dictionary_encode()
    plain_texts: list[str | None] = []
    for text in encoded.dictionary.to_pylist():
        try:
            plain_texts.append(decimal_of_text(text, type_))
        except (ValueError, ArithmeticError):
            plain_texts.append(None)
    found = pa.array(plain_texts, field.type).take(encoded.indices)
    bad = odd.copy()
    bad[odd] = found.is_null().to_numpy(zero_copy_only=False)
    return pc.replace_with_mask(field, pa.array(odd), found), bad


def _read_array(field: pa.ListArray, inner: Type) -> Column:
    element = plain(inner)
    wrapped = is_wrapped(element) and pa.types.is_struct(field.type.value_type)

    def read(items: pa.Array) -> Column:
        # In protobuf the element is a message with exactly one field, `value`: absent there is null or empty.
        return read_column(items.flatten()[0], element, None) if wrapped else _read_element(items, element)

    return _read_list(field, read, Array(inner))


def _read_list(field: pa.ListArray, read: Callable[[pa.Array], Column], type_: Type) -> Column:
    field = without_null_lists(field)
    offsets = field.offsets.to_numpy()
    items = read(field.flatten())
    starts = pa.array(offsets - offsets[0], pa.int32())
    values = pa.ListArray.from_arrays(starts, items.values, type=arrow_type(type_))
    return Column(values, tuple(Flaw(any_of(flaw.rows, offsets), flaw.reason) for flaw in items.flaws))


def without_null_lists(lists: pa.ListArray) -> pa.ListArray:
    """Empty lists instead of null. (Arrow's own `fill_null` copies every element of every list, one by one.)"""
    if not lists.null_count:
        return lists
    lengths = np.diff(lists.offsets.to_numpy())
    if lengths[lists.is_null().to_numpy(zero_copy_only=False)].any():
        return lists.fill_null(pa.scalar([], lists.type))
    return pa.ListArray.from_arrays(pa.array(lists.offsets.to_numpy()), lists.values, type=lists.type)


def any_of(items: Mask, offsets: npt.NDArray[np.int32]) -> Mask:
    """Which lists hold a marked item."""
    before = np.concatenate(([0], np.cumsum(items)))
    marked: Mask = before[offsets[1:] - offsets[0]] > before[offsets[:-1] - offsets[0]]
    return marked


def _read_struct(field: pa.StructArray, types: tuple[Type, ...], names: tuple[str, ...]) -> Column:
    """The members of a Tuple or of a Map's entry; an absent message has absent members."""
    members = [read_column(member, type_, zero(type_)) for member, type_ in zip(field.flatten(), types, strict=True)]
    values = pa.StructArray.from_arrays([member.values for member in members], names=list(names))
    return Column(values, tuple(flaw for member in members for flaw in member.flaws))
