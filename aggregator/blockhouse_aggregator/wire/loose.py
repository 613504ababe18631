"""Values that carry their own kind (format `nucolumnar`) to a column of the table's type.

Every integer kind fits every integer column in whose range the number is. Nothing is rounded or cut but what the
format cannot express otherwise: a timestamp counts milliseconds, and is stored as the second or day it lies in; a
`double` for a Float32 becomes the nearest one. Must never take a kind for another: what does not fit is a flaw of its
row."""

from __future__ import annotations

from typing import assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blockhouse.schema.kinds import bare
from blockhouse.schema.types import (
    Array,
    Bare,
    Decimal,
    Fixed,
    Float,
    Integer,
    Layout,
    Leaf,
    Map,
    Proto,
    Text,
    Tuple,
    Type,
    Unit,
)
from blockhouse_aggregator.wire.columns import Flaw, Mask, any_of, field_type, without_null_lists
from blockhouse_aggregator.wire.nucolumnar_messages import Kind
from blockhouse_aggregator.wire.texts import read_texts

_INTEGERS = (Kind.INT, Kind.LONG, Kind.UINT, Kind.ULONG)
_MS_OF_A_DAY = 86_400_000
Read = tuple[pa.Array, tuple[Flaw, ...]]
"""Values in `field_type`, null where nothing was sent or the row is flawed; and the flaws."""


class LooseValues:
    """Values of any kinds, all in one array: `kinds` has the number of each."""

    def __init__(self, values: pa.StructArray) -> None:
        self._children = dict(zip((Kind(n) for n in range(1, len(values.type) + 1)), values.flatten(), strict=True))
        self.kinds = np.zeros(len(values), np.uint8)
        for kind, child in self._children.items():
            if child.null_count < len(child):
                self.kinds += _valid(child).view(np.uint8) * np.uint8(kind)

    def sent(self, index: int) -> object:
        """One value as it was sent."""
        kind = Kind(int(self.kinds[index]))
        return None if kind in (Kind.NONE, Kind.NULL) else self._children[kind][index]

    def column(self, first: int, step: int, type_: Type) -> Read:
        """Every `step`-th value from `first` on, for a column of this type. NULL is null."""
        kinds = self.kinds[first::step]
        expected = pa.array(np.arange(first, len(self.kinds), step))
        element = bare(type_)
        found: list[pa.Array] = []
        flaws: list[Flaw] = []
        for number in np.flatnonzero(np.bincount(kinds, minlength=len(Kind))).tolist():
            kind = Kind(number)
            if kind is Kind.NULL:
                continue
            if kind is Kind.NONE:
                flaws.append(Flaw(kinds == 0, "NoValue"))
                continue
            child = self._children[kind] if step == 1 else self._children[kind].take(expected)
            converted = _read(kind, child, element)
            if converted is None:
                flaws.append(Flaw(kinds == number, "WrongKind"))
            else:
                found.append(converted[0])
                flaws += converted[1]
        if not found:
            return pa.nulls(len(kinds), field_type(type_)), tuple(flaws)
        return (found[0] if len(found) == 1 else pc.coalesce(*found)), tuple(flaws)


def several_kinds(values: pa.StructArray) -> Mask:
    """Which values have more than one kind on the wire: only the official runtime knows which one counts."""
    count = np.zeros(len(values), np.uint8)
    children = values.flatten()
    for child in children:
        if child.null_count < len(child):
            count += _valid(child).view(np.uint8)
    found: Mask = count > 1
    if len(children) == Kind.LIST:
        lists = children[-1].flatten()[0]
        if lists.null_count < len(lists):
            lists = without_null_lists(lists)
            found |= any_of(several_kinds(lists.flatten()), lists.offsets.to_numpy())
    return found


def _valid(array: pa.Array) -> Mask:
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _read(kind: Kind, values: pa.Array, type_: Bare) -> Read | None:
    """The values of one kind (null elsewhere); None when the kind means nothing to this type."""
    match type_:
        case Array():
            return _list(values, type_) if kind is Kind.LIST else None
        case Map() | Tuple():
            return None
        case leaf:
            return _convert(kind, values, leaf)


def _list(lists: pa.Array, type_: Array) -> Read | None:
    if not pa.types.is_struct(lists.type) or lists.type[0].name != "value":
        return None
    lists = lists.flatten()[0]
    null: Mask = lists.is_null().to_numpy(zero_copy_only=False)
    lists = without_null_lists(lists)
    offsets = lists.offsets.to_numpy()
    items, flaws = LooseValues(lists.flatten()).column(0, 1, type_.inner)
    starts = pa.array(offsets - offsets[0], pa.int32())
    values = pa.ListArray.from_arrays(starts, items, type=field_type(type_), mask=pa.array(null))
    return values, tuple(Flaw(any_of(flaw.rows, offsets), flaw.reason) for flaw in flaws)


def _convert(kind: Kind, values: pa.Array, type_: Leaf) -> Read | None:
    """The values of one kind (null elsewhere) for a leaf; None when the kind means nothing to this type."""
    match kind, type_:
        case ((Kind.INT | Kind.LONG | Kind.UINT | Kind.ULONG), Integer() | Float() | Decimal() | Fixed()):
            return _integers(values, type_)
        case Kind.BOOL, Integer(unit=Unit.NUMBER):
            expected = field_type(type_)
            return (values if pa.types.is_boolean(expected) else values.cast(expected)), ()
        case Kind.DOUBLE, Float():
            return _doubles(values, type_)
        case Kind.DOUBLE, Decimal():
            # The shortest digits that mean this number: 1.1 is 1.1, not what its bits are exactly.
            return read_texts(values.cast(pa.string()), type_)
        case Kind.STRING, Text() | Fixed(layout=Layout.PADDED):
            return values, ()
        case Kind.STRING, Integer() | Fixed() | Decimal() | Float():
            return read_texts(values, type_)
        case Kind.TIMESTAMP, Integer(unit=(Unit.DAY | Unit.TICK)):
            return _timestamps(values.flatten()[0], type_)
        case _:  # open: most pairs of a kind and a type mean nothing; `_integers` answers for each type
            return None


def _integers(values: pa.Array, type_: Leaf) -> Read | None:
    match type_:
        case Integer(proto=Proto.BOOL):
            bad = _where(pc.or_(pc.less(values, 0), pc.greater(values, 1)))
            return _cleaned(pc.not_equal(values, pa.scalar(0, values.type)), bad)
        case Integer():
            expected = field_type(type_)
            if values.type == expected:
                return values, ()
            signed = pa.types.is_signed_integer(values.type)
            limit = pa.scalar(0 if signed else (1 << 63) - 1, values.type)
            bad = _where(pc.less(values, limit) if signed else pc.greater(values, limit))
            return _cleaned(values.cast(expected, safe=False), bad)
        case Float(storage=storage):
            exact = 1 << (24 if storage == "float32" else 53)
            bad = _where(pc.greater(values, pa.scalar(exact, values.type)))
            if pa.types.is_signed_integer(values.type):
                bad |= _where(pc.less(values, pa.scalar(-exact, values.type)))
            return _cleaned(values.cast(field_type(type_), safe=False), bad)
        case Decimal():
            return values.cast(pa.string()), ()
        case Fixed(layout=(Layout.SIGNED | Layout.UNSIGNED)):
            return read_texts(values.cast(pa.string()), type_)
        case Text() | Fixed():
            return None
        case _:
            assert_never(type_)


def _doubles(values: pa.Array, type_: Float) -> Read:
    if type_.storage != "float32":
        return values, ()
    narrow = values.cast(pa.float32(), safe=False)
    return _cleaned(narrow, _where(pc.and_(pc.is_inf(narrow), pc.is_finite(values))))


def _timestamps(milliseconds: pa.Array, type_: Integer) -> Read | None:
    if type_.unit is Unit.DAY:
        return _integers(pc.divide(milliseconds, pa.scalar(_MS_OF_A_DAY, pa.uint64())), type_)
    if type_.precision <= 3:
        return _integers(pc.divide(milliseconds, pa.scalar(10 ** (3 - type_.precision), pa.uint64())), type_)
    factor = 10 ** (type_.precision - 3)
    bad = _where(pc.greater(milliseconds, pa.scalar(((1 << 63) - 1) // factor, pa.uint64())))
    found = _integers(pc.multiply(milliseconds, pa.scalar(factor, pa.uint64())), type_)
    assert found is not None
    values, flaws = _cleaned(found[0], bad)
    return values, (*flaws, *found[1])


def _where(condition: pa.Array) -> npt.NDArray[np.bool_]:
    mask: Mask = condition.fill_null(False).to_numpy(zero_copy_only=False)
    return mask.copy()


def _cleaned(values: pa.Array, bad: Mask) -> Read:
    """The values without those out of range."""
    if not bad.any():
        return values, ()
    return pc.if_else(pa.array(bad), pa.scalar(None, values.type), values), (Flaw(bad, "OutOfRange"),)
