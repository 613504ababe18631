"""Messages of every format, for tests: what producers in the field would send, made without the code under test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from blockhouse.schema.history import first_revision
from blockhouse.schema.model import DefaultKind, Revision, ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse_aggregator.wire.nucolumnar_messages import request_class

FORMATS = ("rows", "nucolumnar", "json")
Row = Mapping[str, Any]
REQUEST = request_class(4)


class Kinds(dict[str, Any]):
    """A value of format `nucolumnar` by the name of its field: Kinds(long_value=1), Kinds(list_value=[Kinds(...)])."""


NULL = Kinds(null_value=0)


def history(columns: Mapping[str, str], name: str = "db.t") -> TableHistory:
    """A table with one revision. A type may be followed by DEFAULT (or another kind) and an expression."""
    return TableHistory(id=1, name=name, revisions=(first_revision([column(*item) for item in columns.items()]),))


def column(name: str, text: str) -> ServerColumn:
    for kind in DefaultKind:
        type_, found, expression = text.partition(f" {kind} ") if kind else (text, "", "")
        if found:
            return ServerColumn(name=name, type=type_, default_kind=kind, default_expression=expression)
    return ServerColumn(name=name, type=text)


def encode(form: str, table: TableHistory, rows: Sequence[Row], *, revision: Revision | None = None) -> bytes:
    """One message. Values are what the format takes: see `rows_message`, `nucolumnar_message`, `json_message`."""
    of = revision or table.revisions[-1]
    match form:
        case "rows":
            return rows_message(table, of, rows)
        case "nucolumnar":
            return nucolumnar_message(rows)
        case _:
            return json_message(rows)


def rows_message(table: TableHistory, revision: Revision, rows: Sequence[Row]) -> bytes:
    """Values as protobuf takes them. The class is the wide one: a producer's fields may be wider than the column."""
    message: Any = row_batch_class(table, revision, wide=True)(rows=rows)
    return bytes(message.SerializeToString())


def nucolumnar_message(rows: Sequence[Row], *, sql: str | None = None) -> bytes:
    """Values are `Kinds`. All rows have the columns of the first one, which the statement names unless `sql` is given.
    Rows without any column cannot be written: they stand as a NULL for a column that is not there."""
    message: Any = REQUEST()
    message.shard, message.table = b"1", b"t"
    names = tuple(rows[0]) if rows else ()
    listed = ", ".join(f"`{name}`" for name in names)
    marks = ", ".join("?" for _ in names)
    message.nucolumnarEncoding.sql = (sql or f"INSERT INTO t ({listed}) VALUES ({marks})").encode()
    for row in rows:
        assert tuple(row) == names
        bindings = message.nucolumnarEncoding.batch_bindings.add()
        for value in row.values():
            _fill(bindings.values.add(), value)
    return bytes(message.SerializeToString())


def _fill(value: Any, kinds: Kinds) -> None:
    for kind, given in kinds.items():
        if kind == "timestamp":
            value.timestamp.milliseconds = given
        elif kind == "list_value":
            value.list_value.SetInParent()
            for item in given:
                _fill(value.list_value.value.add(), item)
        else:
            setattr(value, kind, given)


class Digits(float):
    """A number that stands in the JSON exactly as it is written."""

    def __new__(cls, text: str) -> Digits:
        made = super().__new__(cls, 0)
        made.text = text
        return made

    text: str

    def __repr__(self) -> str:
        return self.text


def json_message(rows: Sequence[Row]) -> bytes:
    """Values as JSON has them; `Digits` for numbers that Python could not write."""
    return "\n".join(_dumps(row) for row in rows).encode("utf-8", "surrogatepass")


def _dumps(value: Any) -> str:
    match value:
        case Digits():
            return value.text
        case Mapping():
            return "{" + ", ".join(f"{json.dumps(name)}: {_dumps(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_dumps, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)
