"""Rows as mappings become one `RowBatch` of a table's schema revision.

A column that a row does not name, or gives as None, is left out: it gets its DEFAULT, or NULL. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from blockhouse.errors import Permanent
from blockhouse.producer.values import scalar
from blockhouse.schema.model import Revision, TableHistory
from blockhouse.schema.parse import parse_type
from blockhouse.schema.proto import row_batch_class
from blockhouse.schema.types import Array, Map, Nullable, Plain, Tuple, Type, plain

Row = Mapping[str, Any]


class UnknownColumn(Permanent):
    """A row names a column that this revision does not have; a later one may."""


class RowEncoder:
    """Encodes rows of one revision of one table. Raises Permanent naming table, column and row for what cannot be."""

    def __init__(self, table: TableHistory, revision: Revision) -> None:
        self.table = table.name
        self.revision = revision.number
        self._batch = row_batch_class(table, revision)
        fields = _members(self._batch.DESCRIPTOR.fields_by_name["rows"].message_type)
        self._columns = {c.name: (fields[c.field], parse_type(c.type)) for c in revision.row}

    def encode(self, rows: Sequence[Row]) -> bytes:
        """The bytes of one message. Raises Permanent (UnknownColumn, or reason BadValue)."""
        batch: Any = self._batch()
        for index, row in enumerate(rows):
            message = batch.rows.add()
            for name, value in row.items():
                self._fill(message, name, value, index)
        return bytes(batch.SerializeToString())

    def _fill(self, message: Message, name: str, value: object, index: int) -> None:
        column = self._columns.get(name)
        if column is None:
            raise UnknownColumn(
                f"table {self.table}, row {index}: revision {self.revision} has no column {name!r} for producers "
                f"(it has {', '.join(self._columns)})",
                reason="UnknownColumn",
            )
        try:
            _set(message, *column, value)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise Permanent(f"table {self.table}, row {index}, column {name}: {error}", reason="BadValue") from error


def _set(message: Message, field: Any, type_: Type, value: Any) -> None:
    """Fill one field of the message; the nesting is that of `schema/proto.py`."""
    type_ = plain(type_)
    if value is None:
        return
    match type_:
        case Array(inner=inner):
            _append(getattr(message, field.name), plain(inner), value)
        case Map(key=key, value=inner):
            for pair in value.items():
                _set_members(getattr(message, field.name).add(), (key, inner), pair)
        case Tuple():
            nested = getattr(message, field.name)
            nested.SetInParent()
            _set_members(nested, type_.elements, _elements(type_, value))
        case Nullable(inner=leaf):
            setattr(message, field.name, scalar(leaf, value))
        case leaf:
            setattr(message, field.name, scalar(leaf, value))


def _append(repeated: Any, inner: Plain, values: Iterable[Any]) -> None:
    """Elements of an Array: scalars as they are, anything else in a message of its own."""
    if isinstance(values, str | bytes | Mapping):
        raise TypeError(f"{type(values).__name__} was given, expected a list")
    match inner:
        case Tuple(elements=elements):
            for value in values:
                _set_members(repeated.add(), elements, _elements(inner, value))
        case Array() | Map() | Nullable():
            for value in values:
                nested = repeated.add()
                _set(nested, _members(nested.DESCRIPTOR)[1], inner, value)
        case leaf:
            repeated.extend([scalar(leaf, value) for value in values])


def _set_members(message: Message, types: Sequence[Type], values: Sequence[Any]) -> None:
    if len(types) != len(values):
        raise ValueError(f"{len(values)} elements were given, expected {len(types)}")
    fields = _members(message.DESCRIPTOR)
    for number, (type_, value) in enumerate(zip(types, values, strict=True), 1):
        _set(message, fields[number], type_, value)


def _elements(type_: Tuple, value: Any) -> Sequence[Any]:
    """A Tuple's values by position or, as a mapping, by name."""
    if isinstance(value, Mapping):
        unknown = set(value) - set(type_.names)
        if unknown:
            raise ValueError(f"no element {', '.join(sorted(map(str, unknown)))}, expected {', '.join(type_.names)}")
        return [value.get(name) for name in type_.names]
    return list(value)


def _members(descriptor: Any) -> Mapping[int, Any]:
    """Field descriptors by number; their Python classes differ between protobuf's implementations."""
    return dict(descriptor.fields_by_number)
