"""What a column holds where its message has no value: a constant, an answer of the server, or nothing certain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blockhouse.errors import Permanent
from blockhouse.schema.defaults import constant_default
from blockhouse.schema.expressions import Expression, not_repeatable, server_expression
from blockhouse.schema.model import Column, DefaultKind, ServerColumn, TableHistory
from blockhouse.schema.parse import parse_type
from blockhouse.schema.types import Array, Map, Nullable, Tuple, Type, plain, zero
from blockhouse_aggregator.audit.values.reading import sent_leaf


@dataclass(frozen=True, slots=True)
class Constant:
    """The same in every row, as `comparable` takes it."""

    value: Any


@dataclass(frozen=True, slots=True)
class Unknown:
    """Cannot be judged, and why."""

    reason: str


Default = Constant | Expression | Unknown


@dataclass(frozen=True, slots=True)
class JudgedColumn:
    """A stored column. `sent` is whether messages may have it: the others hold their `default` in every row."""

    name: str
    type: Type
    sent: bool
    default: Default


def judged_column(history: TableHistory, server: ServerColumn) -> JudgedColumn | Unknown:
    """How a column of the server is judged, or why not at all."""
    try:
        type_ = parse_type(server.type)
    except Permanent:
        return Unknown(f"type {server.type}")
    current = history.current
    if current is None:
        return Unknown("the schema history has no revision of the table")
    known = {column.name: column for column in current.row}
    if server.default_kind is DefaultKind.MATERIALIZED:
        default = _computed(Column(**server.model_dump(), field=1), known)
        return default if isinstance(default, Unknown) else JudgedColumn(server.name, type_, False, default)
    if server.name not in known:
        return Unknown("the schema history does not have it")
    return JudgedColumn(server.name, type_, True, _default(history, server.name, known))


def _computed(column: Column, known: Mapping[str, Column]) -> Expression | Unknown:
    if function := not_repeatable(column):
        return Unknown(f"{function} gives something else whenever it is asked")
    try:
        found = server_expression(column, known)
    except ValueError as error:
        return Unknown(f"MATERIALIZED {column.default_expression}: {error}")
    return Unknown(f"MATERIALIZED {column.default_expression}: it asks for the time") if found.timed else found


def _default(history: TableHistory, name: str, known: Mapping[str, Column]) -> Default:
    revisions = [{column.name: column for column in revision.row}.get(name) for revision in history.revisions]
    versions = {(c.default_kind, c.default_expression) for c in revisions if c is not None}
    column = known[name]
    if len(versions) > 1:
        return Unknown("its DEFAULT has changed: what a message without it was given is not known")
    try:
        constant = constant_default(history.name, column)
    except Permanent:
        try:
            found = server_expression(column, known)
        except ValueError as error:
            return Unknown(f"DEFAULT {column.default_expression}: {error}")
        if found.timed and revisions[0] is None:
            return Unknown("rows older than the column have the time at which they are read")
        return found
    return Constant(stored_constant(constant, parse_type(column.type)))


def stored_constant(constant: Any, type_: Type) -> Any:
    """A constant in the form of a message, None where the type has no such form, as `comparable` takes it."""
    match plain(type_):
        case Nullable(inner=leaf):
            return None if constant is None else sent_leaf(constant, leaf)
        case Array() | Map():
            return []
        case Tuple(elements=elements):
            return tuple(stored_constant(zero(element), element) for element in elements)
        case leaf:
            return sent_leaf(constant, leaf)
