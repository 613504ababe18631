"""The Arrow type in which each ClickHouse type waits between decoding and encoding.

Values in these arrays are final: range-checked, defaults filled in, ready to be copied into Native bytes. Beside it the
views of an array's memory, which must never copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blockhouse.schema.types import (
    Array,
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

_LARGEST = (1 << 31) - 1


def arrow_type(type_: Type) -> pa.DataType:
    """The column type; Nullable and LowCardinality are those of their inner type (every Arrow array may hold nulls)."""
    match type_:
        case Integer(storage=storage) | Float(storage=storage):
            return _number(storage)
        case Text():
            return pa.binary()
        case Fixed(size=size):
            return pa.binary(size)
        case Decimal(precision=precision, scale=scale):
            return pa.decimal256(precision, scale) if precision > 38 else pa.decimal128(precision, scale)
        case Nullable(inner=inner) | LowCardinality(inner=inner):
            return arrow_type(inner)
        case Array(inner=inner):
            return pa.list_(arrow_type(inner))
        case Map(key=key, value=value):
            return pa.list_(pa.struct([("key", arrow_type(key)), ("value", arrow_type(value))]))
        case Tuple(elements=elements):
            # Positions, not names: a struct may not have two fields of one name.
            return pa.struct([(str(n), arrow_type(element)) for n, element in enumerate(elements)])
        case _:
            assert_never(type_)


@cache
def _number(storage: str) -> pa.DataType:
    return pa.from_numpy_dtype(np.dtype(storage))


class PrefixedType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """Strings as the Native format has them, each behind its length, in an array of `binary`: a column of String that
    needs only to be copied."""

    def __init__(self) -> None:
        super().__init__(pa.binary(), "blockhouse.prefixed")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> PrefixedType:
        return cls()


PREFIXED = PrefixedType()


def values_of(array: pa.Array, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """The array's fixed-width values; anything where it is null."""
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, count=len(array), offset=array.offset * dtype.itemsize)


def offsets_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """len + 1 positions of a binary or list array, in its (possibly longer) child."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, count=len(array) + 1, offset=array.offset * 4)


def bytes_of(array: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """All strings, one behind the other."""
    offsets = offsets_of(array)
    first, end = int(offsets[0]), int(offsets[-1])
    if first == end:
        return np.empty(0, np.uint8)
    return np.frombuffer(array.buffers()[2], np.uint8, count=end - first, offset=first)


def joined(payloads: Sequence[bytes]) -> pa.BinaryArray:
    """The payloads as one array. (Arrow's own conversion grows its memory as it goes: ten times slower on 4 MiB.)"""
    ends = np.fromiter(accumulate(map(len, payloads), initial=0), np.int64, len(payloads) + 1)
    if ends[-1] > _LARGEST:
        raise ValueError(f"{ends[-1]} bytes of messages in one batch: decode them in portions")
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(payloads))]
    return pa.Array.from_buffers(pa.binary(), len(payloads), buffers)
