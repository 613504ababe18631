"""Messages of each format to the values of their rows: the official protobuf runtime, and Python's own json.

A reader gives the rows of a message as objects of its own, and then one column of many rows. What a row lacks is
absent. A value that cannot be read is unreadable, which no stored value equals.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal as Number
from operator import attrgetter, methodcaller
from typing import Any, NoReturn, Protocol, assert_never

import numpy as np
from google.protobuf.message import DecodeError

from blockhouse.schema.kinds import is_repeated
from blockhouse.schema.model import Revision, TableHistory
from blockhouse.schema.proto import field_names, row_batch_class
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
    Plain,
    Text,
    Tuple,
    Type,
    plain,
    zero,
)
from blockhouse_aggregator.audit.values.comparable import Mask
from blockhouse_aggregator.audit.values.plainly import Timestamp, meaning, within
from blockhouse_aggregator.wire.formats import Format
from blockhouse_aggregator.wire.insert_sql import columns_of
from blockhouse_aggregator.wire.nucolumnar_messages import request_class

_FAILURES = (ValueError, TypeError, LookupError, ArithmeticError)
_DEEPEST = 8


class NotRead(ValueError):
    """A message whose rows cannot be found by this path."""


@dataclass(frozen=True, slots=True)
class Cells:
    """One column of some rows: values as `comparable` takes them, None where `absent` or `unreadable`."""

    values: list[Any]
    absent: Mask
    unreadable: Mask


class Reader(Protocol):
    """Reads messages of one format, and for format `rows` of one revision."""

    def rows(self, payload: bytes) -> Sequence[Any]:
        """The rows of a message. Raises NotRead."""

    def column(self, name: str, type_: Type, rows: Sequence[Any]) -> Cells:
        """One column of rows that `rows` gave."""


def reader(form: Format, table: TableHistory, revision: Revision | None) -> Reader:
    """`revision` is that of the messages' header. Raises NotRead where format `rows` has none."""
    match form:
        case Format.ROWS:
            if revision is None:
                raise NotRead("their schema revision is not in the history")
            return _Rows(table, revision)
        case Format.JSON:
            return _Json()
        case Format.NUCOLUMNAR:
            return _Nucolumnar(table)
        case _:
            assert_never(form)


class _Rows:
    def __init__(self, table: TableHistory, revision: Revision) -> None:
        self._fields = field_names(table, revision)
        self._message: Any = row_batch_class(table, revision, wide=True)

    def rows(self, payload: bytes) -> Sequence[Any]:
        try:
            return list(self._message.FromString(payload).rows)
        except DecodeError as error:
            raise NotRead(str(error)) from error

    def column(self, name: str, type_: Type, rows: Sequence[Any]) -> Cells:
        field = self._fields.get(name)
        if field is None:
            return _all_absent(rows)
        values = map(attrgetter(field), rows)
        if is_repeated(type_):  # never absent: that is an empty list
            return _cells(values, np.zeros(len(rows), np.bool_), lambda value: _sent(value, type_))
        present = np.fromiter(map(methodcaller("HasField", field), rows), np.bool_, len(rows))
        return _cells(values, ~present, lambda value: _sent(value, type_))


class _Json:
    def rows(self, payload: bytes) -> Sequence[Any]:
        try:
            lines = [line for line in payload.decode().split("\n") if line.strip(" \t\r")]
            rows = [json.loads(line, parse_int=Number, parse_float=Number, parse_constant=_refused) for line in lines]
        except (ValueError, RecursionError) as error:
            raise NotRead(str(error)) from error
        if not all(isinstance(row, dict) for row in rows):
            raise NotRead("a line is not an object")
        return rows

    def column(self, name: str, type_: Type, rows: Sequence[Any]) -> Cells:
        return _named(name, type_, rows)


class _Nucolumnar:
    """Rows are the values by column, each with its kind."""

    def __init__(self, table: TableHistory) -> None:
        self._message: Any = request_class(_DEEPEST)
        self._table = table

    def rows(self, payload: bytes) -> Sequence[Any]:
        try:
            encoded = self._message.FromString(payload).nucolumnarEncoding
            named = columns_of(encoded.sql) if encoded.sql else ()
        except (DecodeError, ValueError) as error:
            raise NotRead(str(error)) from error
        rows = [binding.values for binding in encoded.batch_bindings]
        names = self._implied(len(rows[0])) if named is None and rows else named or ()
        if any(len(values) != len(names) for values in rows):
            raise NotRead("its rows do not have the columns of its statement")
        return [dict(zip(names, map(_kind, values), strict=True)) for values in rows]

    def column(self, name: str, type_: Type, rows: Sequence[Any]) -> Cells:
        return _named(name, type_, rows)

    def _implied(self, width: int) -> tuple[str, ...]:
        orders = {tuple(c.name for c in known.row) for known in self._table.revisions if len(known.row) == width}
        if len(orders) != 1:
            raise NotRead("its statement names no columns, and several revisions may be meant")
        return orders.pop()


def _named(name: str, type_: Type, rows: Sequence[Mapping[str, Any]]) -> Cells:
    absent = np.fromiter((name not in row for row in rows), np.bool_, len(rows))
    return _cells((row.get(name) for row in rows), absent, lambda value: meaning(value, type_))


def _all_absent(rows: Sequence[Any]) -> Cells:
    return Cells([None] * len(rows), np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_))


def _cells(values: Any, absent: Mask, convert: Callable[[Any], Any]) -> Cells:
    found: list[Any] = []
    unreadable = np.zeros(len(absent), np.bool_)
    for index, (value, missing) in enumerate(zip(values, absent.tolist(), strict=True)):
        try:
            found.append(None if missing else convert(value))
        except _FAILURES:
            found.append(None)
            unreadable[index] = True
    return Cells(found, absent, unreadable)


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _kind(value: Any) -> Any:
    """A value of format `nucolumnar` as a Python value of its kind."""
    kind = value.WhichOneof("kind")
    if kind == "null_value":
        return None
    if kind == "timestamp":
        return Timestamp(value.timestamp.milliseconds)
    if kind == "list_value":
        return [_kind(item) for item in value.list_value.value]
    return getattr(value, kind) if kind else object()  # which is no value of any type


def _sent(value: Any, type_: Type) -> Any:
    """A value of format `rows`, as protobuf has it."""
    match kind := plain(type_):
        case Nullable(inner=leaf):
            return sent_leaf(value, leaf)
        case Array(inner=inner):
            return _sent_elements(value, plain(inner))
        case Map(key=key, value=inner):
            return [(_member(entry, "key", key), _member(entry, "value", inner)) for entry in value]
        case Tuple(elements=elements):
            names = [field.name for field in sorted(value.DESCRIPTOR.fields, key=attrgetter("number"))]
            return tuple(_member(value, name, element) for name, element in zip(names, elements, strict=True))
        case Integer() | Float() | Text() | Fixed() | Decimal():
            return sent_leaf(value, kind)
        case _:
            assert_never(kind)


def _sent_elements(items: Any, element: Plain) -> list[Any]:
    match element:
        case Nullable(inner=leaf):
            return [sent_leaf(item.value, leaf) if item.HasField("value") else None for item in items]
        case Array() | Map():
            return [_sent(item.value, element) for item in items]
        case Tuple():
            return [_sent(item, element) for item in items]
        case leaf:
            return [sent_leaf(item, leaf) for item in items]


def _member(message: Any, name: str, type_: Type) -> Any:
    """A member of a tuple or of a map's entry; an absent one is the zero of its type."""
    match kind := plain(type_):
        case Nullable(inner=leaf):
            return sent_leaf(getattr(message, name), leaf) if message.HasField(name) else None
        case Array() | Map() | Tuple():
            return _sent(getattr(message, name), kind)
        case leaf:
            return sent_leaf(getattr(message, name) if message.HasField(name) else zero(leaf), leaf)


def sent_leaf(value: Any, leaf: Leaf) -> Any:
    """A leaf in the form in which a message of format `rows` sends it; so defaults are written too."""
    match leaf:
        case Integer():
            return within(int(value), leaf)
        case Float() | Text():
            return value
        case Fixed(layout=Layout.SIGNED | Layout.UNSIGNED as layout, size=size):
            if len(value) != size:
                raise ValueError(f"{len(value)} bytes")
            return str(int.from_bytes(value, "little", signed=layout is Layout.SIGNED)).encode()
        case Fixed(size=size):
            if len(value) > size:
                raise ValueError(f"{len(value)} bytes")
            return bytes(value)
        case Decimal():
            return Number(value)
        case _:
            assert_never(leaf)
