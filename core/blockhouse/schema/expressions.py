"""A DEFAULT that is no constant: what may be asked of the server, and how, so that every replay gets the same answer.

Only functions of an allow-list: each reads one row and gives the same for the same row, always. The text goes to the
server as the server itself has spelled it; only the clock is replaced, by the time of the message in Kafka. What is not
certainly harmless is refused by name, never approximated. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import assert_never

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from blockhouse.schema.functions import NOT_REPEATABLE, REPEATABLE, SIGNS, WORDS
from blockhouse.schema.kinds import bare
from blockhouse.schema.model import Column, DefaultKind, ServerColumn
from blockhouse.schema.parse import parse_type
from blockhouse.schema.types import Array, Decimal, Fixed, Float, Integer, Layout, Leaf, Map, Text, Tuple, Unit

ROWS, ROW, TIME, TIME_MS = "_blockhouse_rows", "_blockhouse_row", "_blockhouse_time", "_blockhouse_time_ms"
"""The external table, its row index, and the message's Kafka timestamp (DateTime, and Int64 milliseconds)."""

_CLOCK: Mapping[str, str] = {
    "now": TIME,
    "today": f"toDate({TIME})",
    "yesterday": f"(toDate({TIME}) - 1)",
    "now64": f"fromUnixTimestamp64Milli({TIME_MS})",
}
_CHANGING = frozenset(name.lower() for name in NOT_REPEATABLE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_TYPE = re.compile(r"U?Int\d+|Float\d\d|String|FixedString|Date(Time)?(32|64)?|UUID|IPv[46]|Bool|Decimal\d*|Nullable")
_LOW_CARDINALITY = re.compile(r"\ALowCardinality\((.*)\)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Expression:
    """The DEFAULT of `column`: `value` gives it in the form in which a message would send it. It needs the columns
    `needs` and, with `timed`, TIME and TIME_MS."""

    column: str
    value: str
    needs: tuple[str, ...]
    timed: bool

    @property
    def select(self) -> str:
        """A SELECT over the external table ROWS, which has ROW (UInt32) too: a value per row, in the order of ROW."""
        return f"SELECT {self.value} FROM {ROWS} ORDER BY {ROW}"


def server_expression(column: Column, known: Mapping[str, Column]) -> Expression:
    """How to ask for the column's DEFAULT. `known` are the columns that a producer can fill.

    Raises ValueError naming what in the expression cannot be evaluated the same way again.
    """
    text = column.default_expression
    words = list(_reviewed(text, known))
    sql = _with_kafka_time(text, words)
    type_text = _LOW_CARDINALITY.sub(r"\1", column.type)
    value = _as_sent(f"CAST(({sql}), {_quoted(type_text)})", column)
    needs = tuple(dict.fromkeys(name for kind, name, _, _ in words if kind == "column"))
    return Expression(column.name, value, needs, any(kind == "clock" for kind, _, _, _ in words))


def in_order(expressions: Sequence[Expression]) -> tuple[Expression, ...]:
    """Each behind those whose columns it needs. Raises ValueError for a circle."""
    left = {expression.column: expression for expression in expressions}
    found: list[Expression] = []
    while left:
        ready = [e for e in left.values() if not set(e.needs) & left.keys()]
        if not ready:
            raise ValueError(f"the defaults of {', '.join(sorted(left))} need each other")
        for expression in ready:
            found.append(left.pop(expression.column))
    return tuple(found)


def not_repeatable(column: Column) -> str:
    """The function that makes a MATERIALIZED column differ from one insert of a block to the next; empty if none."""
    if column.default_kind is not DefaultKind.MATERIALIZED:
        return ""
    return next((name for name in _called(column.default_expression) if name.lower() in _CHANGING), "")


def not_proven(column: ServerColumn) -> str:
    """The function of a MATERIALIZED column that may give something else for the same block later: a dictionary, a
    macro of the replica, one that is not known. Empty if none: then the same block has the same bytes."""
    if column.default_kind is not DefaultKind.MATERIALIZED:
        return ""
    names = _called(column.default_expression)
    proven = (name in REPEATABLE or name.upper() in WORDS or _is_type(name) for name in names)
    return next((name for name, known in zip(names, proven, strict=True) if not known), "")


def _called(expression: str) -> list[str]:
    """The functions in it; an expression that cannot be read counts as one, by its text."""
    try:
        words = sqlglot.tokenize(expression, read="clickhouse")
    except SqlglotError:
        return [expression]
    return [token.text for token, following in pairwise(words) if following.text == "(" and _is_word(token)]


_Found = tuple[str, str, int, int]
"""("column" or "clock", name, where it begins, where it ends)."""


def _reviewed(text: str, known: Mapping[str, Column]) -> Iterator[_Found]:
    """Every column and every clock in the text. Raises ValueError for anything that is not allowed."""
    try:
        tokens = sqlglot.tokenize(text, read="clickhouse")
    except SqlglotError as error:
        raise ValueError(f"cannot be read: {error}") from error
    at = 0
    while at < len(tokens):
        token = tokens[at]
        calls = at + 1 < len(tokens) and tokens[at + 1].text == "(" and token.token_type is not TokenType.IDENTIFIER
        length = 1
        if token.token_type in (TokenType.STRING, TokenType.NUMBER) or token.text in SIGNS:
            pass
        elif not _is_word(token):
            raise ValueError(f"{token.text!r} is not allowed")
        elif calls and token.text in _CLOCK:
            if at + 2 >= len(tokens) or tokens[at + 2].text != ")":
                raise ValueError(f"{token.text} with arguments is not supported")
            length = 3
            yield "clock", token.text, token.start, tokens[at + 2].end
        elif calls:
            if token.text not in REPEATABLE and token.text.upper() not in WORDS and not _is_type(token.text):
                raise ValueError(f"function {token.text} is not known to give the same for the same row everywhere")
        elif name := _column(tokens, at, known):
            length = 3 if "." in name and token.text != name else 1
            yield "column", name, token.start, tokens[at + length - 1].end
        elif token.token_type is TokenType.IDENTIFIER or not (token.text.upper() in WORDS or _is_type(token.text)):
            raise ValueError(f"{token.text} is no column that a message can have")
        at += length


def _column(tokens: Sequence[Token], at: int, known: Mapping[str, Column]) -> str:
    """The column that begins here, perhaps one of a Nested (`n.a`); empty if none."""
    if at + 2 < len(tokens) and tokens[at + 1].text == ".":
        dotted = f"{tokens[at].text}.{tokens[at + 2].text}"
        return dotted if dotted in known else ""
    return tokens[at].text if tokens[at].text in known else ""


def _is_word(token: Token) -> bool:
    if token.token_type is TokenType.STRING:
        return False
    return token.token_type is TokenType.IDENTIFIER or _WORD.fullmatch(token.text) is not None


def _is_type(name: str) -> bool:
    return (
        re.fullmatch(
            r"U?Int\d+|Float\d\d|String|FixedString|Date(Time)?(32|64)?|UUID|IPv[46]|Bool|Decimal\d*|Nullable", name
        )
        is not None
    )


def _with_kafka_time(text: str, found: Sequence[_Found]) -> str:
    for kind, name, begin, end in sorted(found, key=lambda place: -place[2]):
        if kind == "clock":
            text = text[:begin] + _CLOCK[name] + text[end + 1 :]
    return text


def _as_sent(sql: str, column: Column) -> str:
    """The value in the form in which a message would send it. Raises ValueError for what has no such form."""
    match bare(parse_type(column.type)):
        case Array() | Map() | Tuple():
            raise ValueError("a list, map or tuple does not distinguish absent from empty in every format")
        case leaf:
            return _leaf_as_sent(sql, leaf)


def _leaf_as_sent(sql: str, leaf: Leaf) -> str:
    match leaf:
        case Integer(unit=Unit.TICK, storage="int64"):
            return f"reinterpretAsInt64({sql})"
        case Integer(storage="int64", precision=digits) if digits:  # a Time64, of which toInt64 gives whole seconds
            return f"toInt64(CAST({sql}, 'Decimal128({digits})') * {10**digits})"
        case Integer(unit=Unit.CODE, storage=storage):
            return f"CAST({sql}, '{'Int8' if storage == 'int8' else 'Int16'}')"
        case Integer(unit=Unit.ADDRESS):
            return f"toUInt32({sql})"
        case Integer(storage=storage):
            return f"toInt64({sql})" if storage.startswith("int") else f"toUInt64({sql})"
        case Float():
            return f"toFloat64({sql})"
        case Text() | Fixed(layout=Layout.PADDED):
            return sql
        case Fixed(layout=Layout.UUID):
            return f"UUIDStringToNum(toString({sql}))"
        case Fixed(layout=Layout.ADDRESS):
            return f"IPv6StringToNum(toString({sql}))"
        case Fixed(layout=(Layout.SIGNED | Layout.UNSIGNED)) | Fixed() | Decimal():
            return f"toString({sql})"
        case _:
            assert_never(leaf)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
