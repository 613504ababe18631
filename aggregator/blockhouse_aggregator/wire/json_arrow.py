"""JSON lines by Arrow's reader: many messages at once, for tables of scalars and lists.

It names the messages it has read beyond doubt and leaves all others alone. A message is one line or several, each from
`{` to `}`: no line can then reach into the next, for what follows a `}` inside of a value is never a `{`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context
from decimal import Decimal as Number
from typing import assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from blockhouse.schema.kinds import bare, holds_null
from blockhouse.schema.types import (
    Array,
    Decimal,
    Fixed,
    Float,
    Integer,
    Layout,
    Map,
    Nullable,
    Proto,
    Text,
    Tuple,
    Type,
    Unit,
    plain,
)
from blockhouse_aggregator.wire.arrow import arrow_type
from blockhouse_aggregator.wire.columns import Mask, any_of, field_type
from blockhouse_aggregator.wire.texts import read_texts

_EXACT = Context(prec=80)


@dataclass(frozen=True, slots=True)
class Found:
    """The messages that were read (indices), their numbers of rows, and their columns in `field_type`."""

    members: npt.NDArray[np.intp]
    counts: npt.NDArray[np.int64]
    columns: Mapping[str, pa.Array]


def is_plain(type_: Type) -> bool:
    """Whether the reader has the type: a Map's names are not known beforehand, and a list has elements of one type."""
    match plain(type_):
        case Array(inner=inner):
            return is_plain(inner)
        case Map() | Tuple():
            return False
        case Nullable() | Integer() | Float() | Text() | Fixed() | Decimal():
            return True
        case unreachable:
            assert_never(unreachable)


class FastReader:
    """`null_matters` are columns in which a written null is not the same as no value. What the first line of
    `example` has for a column is what is expected for it in all messages; others are left alone."""

    def __init__(self, types: Mapping[str, Type], null_matters: Sequence[str], example: bytes) -> None:
        self._types = types
        self._null_matters = null_matters
        self._options = pj.ParseOptions(
            explicit_schema=pa.schema(_expected(types, example)), unexpected_field_behavior="error"
        )

    def read(self, payloads: pa.BinaryArray) -> Found:
        """The messages that are read beyond doubt."""
        members = np.flatnonzero(_shaped(payloads))
        found = self._try(payloads.take(pa.array(members))) if len(members) else None
        if found is None or len(found.members) < len(members):
            members = members[self._acceptable(payloads.take(pa.array(members)))]
            found = self._try(payloads.take(pa.array(members))) if len(members) else None
        if found is None or len(found.members) < len(members):
            return Found(np.zeros(0, np.intp), np.zeros(0, np.int64), {})
        return Found(members, found.counts, found.columns)

    def _acceptable(self, payloads: pa.BinaryArray, start: int = 0) -> npt.NDArray[np.intp]:
        found = self._try(payloads) if len(payloads) else None
        if found is not None:
            return found.members + start
        if len(payloads) <= 1:
            return np.zeros(0, np.intp)
        half = len(payloads) // 2
        parts = self._acceptable(payloads[:half], start), self._acceptable(payloads[half:], start + half)
        return np.concatenate(parts)

    def _try(self, payloads: pa.BinaryArray) -> Found | None:
        """None when one of the messages makes the reader fail. The columns are of no use unless all are members."""
        counts: npt.NDArray[np.int64] = pc.count_substring(payloads, b"}\n{").to_numpy().astype(np.int64) + 1
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(payloads)], payloads), b"\n")[0].as_buffer()
        try:
            table = pj.read_json(
                pa.BufferReader(joined),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(joined) + 1),
                parse_options=self._options,
            )
        except pa.ArrowException:
            return None
        if table.num_rows != counts.sum():
            return None  # two objects in a line
        doubtful = np.zeros(table.num_rows, np.bool_)
        columns = {}
        for name, type_ in self._types.items():
            columns[name], doubt = _converted(table.column(name).combine_chunks(), type_)
            if doubt is not None:
                doubtful |= doubt
        ends = np.concatenate(([0], np.cumsum(counts)))
        bad = any_of(doubtful, ends)
        unclear = np.zeros(table.num_rows, np.bool_)
        for name in self._null_matters:
            if columns[name].null_count:
                unclear |= columns[name].is_null().to_numpy(zero_copy_only=False)
        if unclear.any():
            written: Mask = pc.match_substring(payloads, b"null").to_numpy(zero_copy_only=False)
            bad = bad | (any_of(unclear, ends) & written)
        return Found(np.flatnonzero(~bad), counts, columns)


def _shaped(payloads: pa.BinaryArray) -> Mask:
    """Which messages are UTF-8, and lines from `{` to `}` and nothing else."""
    lines = pc.count_substring(payloads, b"\n")
    shaped = pc.and_(pc.starts_with(payloads, b"{"), pc.ends_with(payloads, b"}"))
    shaped = pc.and_(shaped, pc.equal(lines, pc.count_substring(payloads, b"}\n{")))
    found: Mask = shaped.to_numpy(zero_copy_only=False).copy()
    try:
        payloads.cast(pa.string())
    except pa.ArrowInvalid:
        for index in np.flatnonzero(found).tolist():
            try:
                payloads[index].as_py().decode()
            except UnicodeDecodeError:
                found[index] = False
    return found


def _expected(types: Mapping[str, Type], example: bytes) -> list[tuple[str, pa.DataType]]:
    try:
        row = json.loads(example.split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        row = None
    sent = row if isinstance(row, dict) else {}
    return [(name, _form(type_, sent.get(name))) for name, type_ in types.items()]


def _form(type_: Type, example: object) -> pa.DataType:
    """The type in which the reader is to take a column's values; several values of ClickHouse have two spellings."""
    match plain(type_):
        case Nullable(inner=leaf):
            return _form(leaf, example)
        case Array(inner=inner):
            first = next(iter(example), None) if isinstance(example, list) else None
            return pa.list_(_form(inner, first))
        case Integer(proto=Proto.BOOL):
            return pa.bool_()
        case Integer(unit=unit, precision=precision) as leaf:
            number = unit is Unit.NUMBER if example is None else isinstance(example, int | float)
            return field_type(leaf) if number and not precision else pa.binary()
        case Float():
            return pa.float64()
        case Decimal() as leaf:
            return arrow_type(leaf)
        case Text() | Fixed() | Map() | Tuple():
            return pa.binary()
        case unreachable:
            assert_never(unreachable)


def _converted(values: pa.Array, type_: Type) -> tuple[pa.Array, Mask | None]:
    """The values in `field_type` (decimals as they are), and the rows about which there is a doubt."""
    match leaf := bare(type_):
        case Array(inner=inner):
            return _converted_list(values, inner)
        case Float(storage=storage):
            found = values.cast(pa.float32(), safe=False) if storage == "float32" else values
            # Not a number, or only an infinity is near: what to think of it is not decided here.
            odd = pc.invert(pc.is_finite(found)).fill_null(False)
            return found, odd.to_numpy(zero_copy_only=False) if pc.any(odd).as_py() else None
        case Text() | Fixed(layout=Layout.PADDED):
            return values, None
        case Decimal():
            return values, _too_large(values, leaf)
        case Integer() | Fixed() if pa.types.is_binary(values.type):
            found, flaws = read_texts(values, leaf)
            return found, np.logical_or.reduce([flaw.rows for flaw in flaws]) if flaws else None
        case Integer() | Fixed() | Map() | Tuple():
            return values, None
        case unreachable:
            assert_never(unreachable)


def _too_large(values: pa.Array, type_: Decimal) -> Mask | None:
    """Arrow checks the digits as written, and then appends zeros up to the scale."""
    most = Number(10**type_.precision - 1).scaleb(-type_.scale, _EXACT)
    seen = pc.min_max(values).as_py()
    if seen["max"] is None or most.copy_negate() <= seen["min"] <= seen["max"] <= most:
        return None
    low, high = (pa.scalar(limit, values.type) for limit in (most.copy_negate(), most))
    wrong: Mask = pc.or_(pc.less(values, low), pc.greater(values, high)).fill_null(False).to_numpy(zero_copy_only=False)
    return wrong


def _converted_list(lists: pa.ListArray, inner: Type) -> tuple[pa.Array, Mask | None]:
    offsets = lists.offsets.to_numpy()
    items, doubt = _converted(lists.flatten(), inner)
    if items.null_count and not holds_null(inner):
        null: Mask = items.is_null().to_numpy(zero_copy_only=False)
        doubt = null if doubt is None else null | doubt
    starts = pa.array(offsets - offsets[0], pa.int32())
    mask = lists.is_null() if lists.null_count else None
    values = pa.ListArray.from_arrays(starts, items, mask=mask)
    return values, None if doubt is None else any_of(doubt, offsets)
