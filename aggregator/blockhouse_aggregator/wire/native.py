"""Columns to the bytes of one block in ClickHouse's Native format, without a Python loop over rows.

Layout (client revision below 54454, and FORMAT Native): varint columns, varint rows, then per column its name, its
type and its data. Equal columns give equal bytes: deduplication and replay depend on it. Must never change a value:
what does not fit its type is an error here, because the decoder has already judged every message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal as Number
from typing import Any, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blockhouse.schema.kinds import bare, holds_null
from blockhouse.schema.parse import parse_type
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
)
from blockhouse_aggregator.wire.arrow import PREFIXED, arrow_type, bytes_of, offsets_of, values_of
from blockhouse_aggregator.wire.varints import positions, spread, varint, widths

Buffer: TypeAlias = bytes | memoryview

_LOW_CARDINALITY_VERSION = (1).to_bytes(8, "little")
# Additional keys follow (bit 9), the dictionary is a new one (bit 10); the low byte is how wide the indices are.
_LOW_CARDINALITY_FLAGS = (1 << 9) | (1 << 10)
_INDEX_WIDTHS = ((1 << 8, "u1"), (1 << 16, "<u2"), (1 << 32, "<u4"))


# Their data is the data of one row behind the other.
_ROW_BY_ROW = Leaf


@dataclass(frozen=True, slots=True)
class ConstantColumn:
    """The same value in every one of `rows` rows, of a type without NULLs and lists: encoded once and repeated."""

    value: bytes | int
    rows: int

    def __len__(self) -> int:
        return self.rows


ColumnData: TypeAlias = pa.Array | pa.ChunkedArray | npt.NDArray[np.integer[Any]] | ConstantColumn
"""Chunks of which each is encoded by itself are never put together; others one column at a time."""


def encode_block(header: Sequence[tuple[str, str]], columns: Mapping[str, ColumnData]) -> bytes:
    """One block: `header` is (name, ClickHouse type) in the order of the server's sample block.

    Raises Permanent(reason="UnsupportedType") for a type that cannot be loaded, and ValueError when the columns are not
    those of the header, differ in length, or hold a value that does not fit: the caller's error, never a message's.
    """
    names = [name for name, _ in header]
    if sorted(names) != sorted(columns):
        raise ValueError(f"columns {sorted(columns)} are not those of the header {sorted(names)}")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise ValueError(f"columns have different numbers of rows: {sorted(lengths)}")
    parts: list[Buffer] = [varint(len(header)), varint(lengths.pop())]
    for name, text in header:
        type_ = parse_type(text)
        parts += (_text(name), _text(text), *_prefix(type_), *_data(type_, columns[name], name))
    return b"".join(parts)


def _text(text: str) -> bytes:
    raw = text.encode()
    return varint(len(raw)) + raw


def _data(type_: Type, data: ColumnData, name: str) -> Iterator[Buffer]:
    if isinstance(data, ConstantColumn):
        yield from _constant(type_, _column(pa.array([data.value]), name, type_), data.rows)
    elif not isinstance(data, pa.ChunkedArray):
        yield from _body(type_, _column(data, name, type_))
    elif isinstance(type_, _ROW_BY_ROW):
        for chunk in data.chunks:
            yield from _body(type_, _column(chunk, name, type_))
    else:
        whole = pa.concat_arrays(data.chunks) if data.num_chunks else pa.array([], data.type)
        yield from _body(type_, _column(whole, name, type_))


def _column(data: pa.Array | npt.NDArray[np.integer[Any]], name: str, type_: Type) -> pa.Array:
    expected = arrow_type(type_)
    try:
        array = pa.array(data) if isinstance(data, np.ndarray) else data
        as_it_is = array.type == expected or (array.type == PREFIXED and isinstance(type_, Text))
        return array if as_it_is else array.cast(expected)
    except pa.ArrowException as error:
        raise ValueError(f"column {name}: {error}") from error


def _constant(type_: Type, value: pa.Array, rows: int) -> Iterator[Buffer]:
    """`value` holds the one value of all rows."""
    if isinstance(type_, LowCardinality):
        yield from _dictionary(type_, value[:rows], rows)
    elif isinstance(type_, _ROW_BY_ROW):
        yield b"".join(_body(type_, value)) * rows
    else:
        raise ValueError(f"a constant of type {type_}")


def _prefix(type_: Type) -> Iterator[Buffer]:
    """What comes once per column, before all data, for every dictionary inside the type."""
    match type_:
        case LowCardinality():
            yield _LOW_CARDINALITY_VERSION
        case Array(inner=inner):
            yield from _prefix(inner)
        case Map(key=key, value=value):
            yield from _prefix(key)
            yield from _prefix(value)
        case Tuple(elements=elements):
            for element in elements:
                yield from _prefix(element)
        case Integer() | Float() | Text() | Fixed() | Decimal() | Nullable():
            return
        case _:
            assert_never(type_)


def _body(type_: Type, array: pa.Array) -> Iterator[Buffer]:
    if array.null_count and not holds_null(type_):
        raise ValueError(f"NULL in a column of type {type_}")
    match type_:
        case Nullable(inner=leaf):
            yield array.is_null().to_numpy(zero_copy_only=False).data if array.null_count else bytes(len(array))
            yield from _body(leaf, _without_nulls(array))
        case LowCardinality():
            yield from _dictionary(type_, array)
        case Integer() | Float():
            yield values_of(array, np.dtype(type_.storage)).data
        case Text():
            yield bytes_of((array if array.type == PREFIXED else prefixed(array)).storage).data
        case Fixed(size=size, layout=layout):
            raw = values_of(array, np.dtype(f"V{size}"))
            yield (raw.view(">u8").astype("<u8") if layout is Layout.UUID else raw).data
        case Decimal(size=size):
            # Arrow has 16 or 32 bytes, least significant first: ClickHouse's narrower decimals are the first of them.
            width = 32 if type_.precision > 38 else 16
            wide = values_of(array, np.dtype(f"V{width}"))
            yield np.ascontiguousarray(wide.view("u1").reshape(-1, width)[:, :size]).data
        case Array(inner=inner):
            yield _ends(array)
            yield from _body(inner, array.flatten())
        case Map(key=key, value=value):
            yield _ends(array)
            entries = array.flatten()
            yield from _body(key, entries.field(0))
            yield from _body(value, entries.field(1))
        case Tuple(elements=elements):
            for element, child in zip(elements, array.flatten(), strict=True):
                yield from _body(element, child)
        case _:
            assert_never(type_)


def _without_nulls(array: pa.Array) -> pa.Array:
    """Zero bytes in the place of every NULL: the server ignores them, but equal blocks must be equal bytes."""
    return array.fill_null(_zero(array.type)) if array.null_count else array


def _zero(type_: pa.DataType) -> pa.Scalar:
    if pa.types.is_binary(type_):
        return pa.scalar(b"", type_)
    if pa.types.is_fixed_size_binary(type_):
        return pa.scalar(bytes(type_.byte_width), type_)
    return pa.scalar(Number(0) if pa.types.is_decimal(type_) else 0, type_)


def _ends(array: pa.ListArray) -> Buffer:
    offsets = offsets_of(array)
    ends: Buffer = (offsets[1:] - offsets[0]).astype("<u8").data
    return ends


def prefixed(strings: pa.BinaryArray) -> pa.ExtensionArray:
    """The same strings, none of them null, each behind its length as a varint."""
    if not len(strings):
        return pa.array([], PREFIXED)
    offsets, content = offsets_of(strings), bytes_of(strings)
    lengths = np.diff(offsets)
    prefix = widths(lengths)
    begins = positions(prefix, len(strings)) + (offsets - offsets[0])
    out = np.empty(int(begins[-1]), np.uint8)
    is_content = np.ones(len(out), np.bool_)
    for byte, which, values in spread(lengths, prefix):
        at = begins[:-1][which] + byte
        out[at] = values
        is_content[at] = False
    out[is_content] = content
    buffers = [None, pa.py_buffer(begins.astype(np.int32)), pa.py_buffer(out)]
    return pa.ExtensionArray.from_storage(PREFIXED, pa.Array.from_buffers(pa.binary(), len(strings), buffers))


def alike(parts: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """Parts of one column in one type, although some strings are PREFIXED and others are not."""
    if all(part.type == parts[0].type for part in parts):
        return parts
    return [part if part.type == PREFIXED else prefixed(part) for part in parts]


def _dictionary(type_: LowCardinality, array: pa.Array, repeated: int = 1) -> Iterator[Buffer]:
    """The block's own dictionary in order of first appearance, then an index per row; all rows `repeated` times.

    Key 0 is zero bytes; under Nullable key 0 is NULL and key 1 is zero.
    """
    if not len(array):
        return
    nullable = holds_null(type_)
    if array.null_count and not nullable:
        raise ValueError(f"NULL in a column of type {type_}")
    default = pa.array([_zero(array.type)], array.type)
    encoded = pa.concat_arrays([default, array]).dictionary_encode()
    indices = encoded.indices[1:]
    # Arrow gave the default 0. NULL is 0 in ClickHouse: everything else moves up by one.
    numbers = (indices.cast(pa.int64()).fill_null(-1).to_numpy() + 1) if nullable else indices.to_numpy()
    keys = pa.concat_arrays([default, encoded.dictionary]) if nullable else encoded.dictionary
    kind, dtype = next((k, d) for k, (limit, d) in enumerate(_INDEX_WIDTHS) if len(keys) <= limit)
    yield (_LOW_CARDINALITY_FLAGS | kind).to_bytes(8, "little")
    yield len(keys).to_bytes(8, "little")
    yield from _body(bare(type_), keys)
    yield (len(array) * repeated).to_bytes(8, "little")
    yield numbers.astype(dtype).tobytes() * repeated
