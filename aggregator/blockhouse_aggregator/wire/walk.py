"""The fast way for rows of plain columns: all rows of a batch are walked side by side, one field at a time.

A protobuf writer writes a row's fields once each, in the order of their numbers. So where field n ends in each row is
where the next one begins, if its tag stands there; else it is absent. Rows that end exactly where their last field ends
have been understood to the last byte: nothing unknown, nothing sent twice, nothing left over. Batches in which any row
differs are not taken at all; whether they are good is for others to decide (`messages.py`), with the same values.
Must never take a batch of which a byte was not understood, and never read beyond a row.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from blockhouse_aggregator.wire.arrow import PREFIXED, bytes_of, joined, offsets_of
from blockhouse_aggregator.wire.messages import attempt
from blockhouse_aggregator.wire.varints import Integers, Size, Words, positions, varint, varints, widths

Positions: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_PADDING = 24
# A row of nothing but padding, behind all others: words of eight bytes may be read at the end of any real row.
_SENTINEL = b"\x0a" + bytes([_PADDING]) + bytes(_PADDING)
_LONGEST_TAG = 2
_FEWEST_STRINGS, _STRINGS_OF = 2, 3
"""At least two columns, and one in three, are strings where this is faster."""
_WIRE_TYPES = {
    FieldDescriptor.TYPE_BOOL: 0,
    FieldDescriptor.TYPE_INT64: 0,
    FieldDescriptor.TYPE_UINT64: 0,
    FieldDescriptor.TYPE_DOUBLE: 1,
    FieldDescriptor.TYPE_BYTES: 2,
    FieldDescriptor.TYPE_STRING: 2,
    FieldDescriptor.TYPE_FLOAT: 5,
}


class NotUnderstood(Exception):
    """Some row is not what a plain writer writes."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: int
    tag: bytes
    prefixed: bool


@dataclass(frozen=True, slots=True)
class _Rows:
    """`content` holds all rows and the sentinel; row i is `content[begins[i]:ends[i]]`."""

    content: npt.NDArray[np.uint8]
    words: Words
    begins: Positions
    ends: Positions


class RowWalk:
    """Reads the rows of `RowBatch` messages, if all their fields are plain values: see `of`."""

    least_bytes = 64 << 10
    """A batch of less is not worth two dozen array operations per column."""

    def __init__(self, fields: Sequence[_Field]) -> None:
        self._fields = tuple(fields)
        self._frame = _frame_handler()

    @classmethod
    def of(cls, batch: type[Message], texts: Container[str]) -> RowWalk | None:
        """`texts` are the fields whose strings are better PREFIXED. None when the rows have lists or messages, a field
        number above 2047, or too few strings: for numbers ptars is as fast, and faster in long rows."""
        row: Any = batch.DESCRIPTOR.fields_by_name["rows"].message_type
        fields = sorted(row.fields, key=lambda field: int(field.number))
        if any(f.is_repeated or f.type not in _WIRE_TYPES for f in fields):
            return None
        found = [_Field(f.name, f.type, varint(f.number << 3 | _WIRE_TYPES[f.type]), f.name in texts) for f in fields]
        strings = sum(field.prefixed for field in found)
        worth_it = strings >= _FEWEST_STRINGS and strings * _STRINGS_OF >= len(found)
        return cls(found) if worth_it and all(len(field.tag) <= _LONGEST_TAG for field in found) else None

    def read(self, payloads: Sequence[bytes]) -> tuple[dict[str, pa.Array], npt.NDArray[np.int64]] | None:
        """Each field's values (null: absent), and the rows of each message. None when not every byte of every
        message is understood, or there are too few.

        Values are in the types of `columns.field_type`, but for a bool as its number, and strings that are PREFIXED.
        """
        if sum(map(len, payloads)) < self.least_bytes:
            return None
        try:
            rows, counts = self._rows(payloads)
            at, found = rows.begins, {}
            for field in self._fields:
                found[field.name], at = _read(rows, field, at)
                if (at > rows.ends).any():
                    return None
        except NotUnderstood:
            return None
        return (found, counts) if (at == rows.ends).all() else None

    def _rows(self, payloads: Sequence[bytes]) -> tuple[_Rows, npt.NDArray[np.int64]]:
        array = joined([*payloads, _SENTINEL])
        batch = attempt(self._frame, array)
        if batch is None:
            raise NotUnderstood
        lists = batch.column("rows")
        rows = lists.flatten()
        sizes: Integers = np.diff(offsets_of(rows))
        ends = offsets_of(lists)
        # Anything that is no row takes two bytes or more, and so a length shows whether there was anything.
        framed = positions(sizes + widths(sizes) + 1, len(sizes))[ends]
        if not np.array_equal(np.diff(framed), np.diff(offsets_of(array))):
            raise NotUnderstood
        bounds = (offsets_of(rows)[:-1] - offsets_of(rows)[0]).astype(np.int64)
        if len(bounds) == 1:
            raise NotUnderstood
        content = bytes_of(rows)
        words = np.ndarray((len(content) - 7,), "<u8", content, strides=(1,))
        return _Rows(content, words, bounds[:-1], bounds[1:]), np.diff(ends)[:-1].astype(np.int64)


def _frame_handler() -> Any:
    """Of messages whose rows are just bytes."""
    file = FileDescriptorProto(name="frame.proto", package="blockhouse.frame", syntax="proto3")
    file.message_type.add(name="Frame").field.add(
        name="rows", number=1, label=FieldDescriptorProto.LABEL_REPEATED, type=FieldDescriptorProto.TYPE_BYTES
    )
    pool = DescriptorPool()
    descriptor = pool.AddSerializedFile(file.SerializeToString()).message_types_by_name["Frame"]
    return ptars.HandlerPool([descriptor.file]).get_for_message(descriptor)


def _read(rows: _Rows, field: _Field, at: Positions) -> tuple[pa.Array, Positions]:
    """The field's values, in rows that are read as far as `at`, and how far they are read then."""
    word, tag = rows.words[at], len(field.tag)
    # (Behind the end of a row the next one begins, maybe with this tag.)
    present: Mask = (word & np.uint64((1 << 8 * tag) - 1) == int.from_bytes(field.tag, "little")) & (at < rows.ends)
    everywhere = bool(present.all())
    if not everywhere and not present.any():
        return pa.nulls(len(at), _ARROW[field.type]), at
    word >>= np.uint64(8 * tag)
    if not everywhere:
        # An absent field is a zero of no bytes.
        word *= present
    behind = at + tag if everywhere else np.where(present, at + tag, at)
    spot = _Spot(rows, behind, word, 8 - tag, None if everywhere else present, field.prefixed and everywhere)
    return _READERS[field.type](spot)


@dataclass(frozen=True, slots=True)
class _Spot:
    """A field behind its tag: `word` holds `reach` bytes from `at`, all zero in rows that are not `present`
    (None: in all)."""

    rows: _Rows
    at: Positions
    word: Words
    reach: int
    present: Mask | None
    prefixed: bool

    def past(self, sizes: Size) -> Positions:
        return self.at + (sizes if self.present is None else sizes * self.present)

    def column(self, values: npt.NDArray[Any]) -> pa.Array:
        return pa.array(values, mask=None if self.present is None else ~self.present)


_Read: TypeAlias = tuple[pa.Array, Positions]


def _varints(spot: _Spot) -> tuple[Words, Size]:
    """The numbers and their bytes."""
    if not (spot.word & np.uint64(128)).any():
        return spot.word & np.uint64(127), 1
    values, sizes = varints(spot.word)
    if int(sizes.max()) <= spot.reach:
        return values, sizes
    word = spot.rows.words[spot.at]
    if spot.present is not None:
        word *= spot.present
    values, sizes = varints(word)
    (longer,) = np.nonzero(sizes > 8)
    if len(longer):
        ninth, tenth = (spot.rows.content[spot.at[longer] + byte].astype(np.uint64) for byte in (8, 9))
        more = ninth > 127
        if (tenth[more] > 1).any():
            raise NotUnderstood
        values[longer] |= (ninth & np.uint64(127)) << np.uint64(56) | (tenth * more) << np.uint64(63)
        sizes[longer] = 9 + more
    return values, sizes


def _unsigned(spot: _Spot) -> _Read:
    values, sizes = _varints(spot)
    return spot.column(values), spot.past(sizes)


def _signed(spot: _Spot) -> _Read:
    values, sizes = _varints(spot)
    return spot.column(values.view(np.int64)), spot.past(sizes)


def _truth(spot: _Spot) -> _Read:
    values = spot.word.astype(np.uint8)
    if int(values.max()) > 1:
        raise NotUnderstood
    return spot.column(values), spot.past(1)


def _double(spot: _Spot) -> _Read:
    return spot.column(spot.rows.words[spot.at].view(np.float64)), spot.past(8)


def _float(spot: _Spot) -> _Read:
    return spot.column(spot.word.astype(np.uint32).view(np.float32)), spot.past(4)


def _bytes(spot: _Spot) -> _Read:
    lengths, sizes = _varints(spot)
    if int(lengths.max()) > len(spot.rows.content):
        raise NotUnderstood
    begins = spot.past(sizes)
    ends = begins + lengths.view(np.int64)
    if (ends > spot.rows.ends).any():
        raise NotUnderstood
    if not spot.prefixed:
        return _slices(spot, begins, ends), ends
    if not isinstance(sizes, int) and (sizes != widths(lengths.view(np.int64))).any():
        # A length of more bytes than it needs: equal strings must be equal bytes.
        raise NotUnderstood
    return pa.ExtensionArray.from_storage(PREFIXED, _slices(spot, spot.at, ends)), ends


def _slices(spot: _Spot, begins: Positions, ends: Positions) -> pa.BinaryArray:
    """What the rows hold there; null where the field is absent."""
    # Strings and what lies between them, in turn: every second one is taken.
    bounds = np.empty(2 * len(begins), np.int32)
    bounds[0::2], bounds[1::2] = begins, ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(spot.rows.content)]
    pieces = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    values = pieces.take(pa.array(np.arange(0, len(bounds), 2, dtype=np.int32)))
    if spot.present is not None:
        values = pc.if_else(pa.array(spot.present), values, pa.scalar(None, pa.binary()))
    return values


def _text(spot: _Spot) -> _Read:
    values, ends = _bytes(spot)
    try:
        return values.cast(pa.string()), ends
    except pa.ArrowInvalid as error:
        raise NotUnderstood from error


_READERS: dict[int, Callable[[_Spot], _Read]] = {
    FieldDescriptor.TYPE_BOOL: _truth,
    FieldDescriptor.TYPE_INT64: _signed,
    FieldDescriptor.TYPE_UINT64: _unsigned,
    FieldDescriptor.TYPE_DOUBLE: _double,
    FieldDescriptor.TYPE_FLOAT: _float,
    FieldDescriptor.TYPE_BYTES: _bytes,
    FieldDescriptor.TYPE_STRING: _text,
}
_ARROW = {
    FieldDescriptor.TYPE_BOOL: pa.uint8(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_UINT64: pa.uint64(),
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_STRING: pa.string(),
}
