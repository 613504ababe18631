"""How a table's schema history grows: append-only, field numbers given once, nothing silently reinterpreted.

Pure functions over `schema/model.py`. Must never renumber a field: producers and in-flight blocks depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from blockhouse.errors import Blocked, Permanent
from blockhouse.schema.model import Column, DefaultKind, Revision, ServerColumn, TableHistory
from blockhouse.schema.parse import parse_type
from blockhouse.schema.types import Integer

_RESERVED_BY_PROTOBUF = range(19_000, 20_000)
_WAY_OUT = "restore it, or load a table of another name"


class Described(Protocol):
    """A column as `system.columns` describes it."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def default_kind(self) -> DefaultKind: ...
    @property
    def default_expression(self) -> str: ...


def first_revision(columns: Sequence[Described]) -> Revision:
    """Revision 1 of a table: field numbers 1, 2, ... in the server's order."""
    return Revision(number=1, columns=_numbered(columns, {}))


def extend(history: TableHistory, server_columns: Sequence[Described]) -> TableHistory:
    """The history with one more revision if the server's columns differ from the current one, else `history` itself.

    Added columns, a changed order, a changed default expression and an Enum with more names make a new revision.
    Raises Blocked(reason="SchemaChange") naming every difference that would lose or change what producers send: a
    dropped or renamed column, another type, or a column that can no longer be inserted.
    """
    current = history.current
    if current is None:
        return history.model_copy(update={"revisions": (first_revision(server_columns),)})
    if [_unnumbered(column) for column in current.columns] == [_unnumbered(column) for column in server_columns]:
        return history
    if differences := list(_incompatible(current, server_columns)):
        raise Blocked(
            f"table {history.name} does not fit its schema revision {current.number}: {'; '.join(differences)}",
            reason="SchemaChange",
        )
    # Every number ever given counts, not only the current ones, so that none is given twice.
    fields = {column.name: column.field for revision in history.revisions for column in revision.columns}
    revision = Revision(number=current.number + 1, columns=_numbered(server_columns, fields))
    return history.model_copy(update={"revisions": (*history.revisions, revision)})


def _numbered(columns: Sequence[Described], known: dict[str, int]) -> tuple[Column, ...]:
    fresh = _unused(max(known.values(), default=0))
    return tuple(Column(**_unnumbered(column), field=known.get(column.name) or next(fresh)) for column in columns)


def _unnumbered(column: Described) -> dict[str, Any]:
    return {name: getattr(column, name) for name in ServerColumn.model_fields}


def _unused(highest: int) -> Iterator[int]:
    while True:
        highest += 1
        if highest not in _RESERVED_BY_PROTOBUF:
            yield highest


def _incompatible(current: Revision, server_columns: Sequence[Described]) -> Iterator[str]:
    found = {column.name: column for column in server_columns}
    for column in current.columns:
        now = found.get(column.name)
        if now is None:
            yield f"column {column.name} was dropped or renamed, or not added here yet: ADD COLUMN {_declared(column)}"
            continue
        if now.type != column.type and not _only_more_names(column.type, now.type):
            yield f"column {column.name} changed from {column.type} to {now.type}: {_WAY_OUT}"
        if column.default_kind.insertable and not now.default_kind.insertable:
            yield f"column {column.name} became {now.default_kind} and can no longer be inserted: {_WAY_OUT}"


def _declared(column: Column) -> str:
    """As a statement declares it: `extra UInt32 DEFAULT 7`."""
    words = (column.name, column.type, str(column.default_kind), column.default_expression)
    return " ".join(word for word in words if word)


def _only_more_names(before: str, after: str) -> bool:
    """Whether both are Enums of one width and every old name kept its number: old values mean the same."""
    try:
        old, new = parse_type(before), parse_type(after)
    except Permanent:
        return False
    return (
        isinstance(old, Integer)
        and isinstance(new, Integer)
        and bool(old.codes)
        and old.storage == new.storage
        and set(old.codes) <= set(new.codes)
    )
