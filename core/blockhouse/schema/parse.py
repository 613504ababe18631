"""From ClickHouse's spelling of a type to its value: `Array(Nullable(Enum8('a' = 1)))`.

The only place that reads type strings. What it does not know it refuses by name; it never guesses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from blockhouse.errors import Permanent
from blockhouse.schema.model import ServerColumn
from blockhouse.schema.types import (
    DECIMAL_DIGITS,
    PLAIN,
    Array,
    Decimal,
    Fixed,
    Layout,
    Leaf,
    LowCardinality,
    Map,
    Nullable,
    Tuple,
    Type,
    date_time,
    date_time_64,
    enum,
    plain,
    time_64,
)

_TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^'\\]|\\.|'')*')|(?P<number>-?\d+)|(?P<word>[A-Za-z_]\w*|`(?:[^`\\]|\\.)*`)|(?P<sign>[(),=]))",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "f": "\f"}
_DERIVED = (
    "its bytes depend on the values of a block and on the server's version: send the text into a String column and let"
    " the table derive this one from it, e.g. j JSON MATERIALIZED text"
)
_NOT_LOADED = {
    "JSON": _DERIVED,
    "Object": _DERIVED,
    "Dynamic": _DERIVED,
    "Variant": _DERIVED,
    "BFloat16": "no message format has such a number: use Float32",
    "AggregateFunction": "a state is bytes of one server version: load the values, aggregate in a materialized view",
}
_COMPOSED = {"Nullable", "LowCardinality", "Array", "Map", "Tuple", "Nested"}


@dataclass(frozen=True, slots=True)
class _Call:
    """`Name(argument, ...)`; an argument of the form `name Type` keeps its name in `label`."""

    name: str
    arguments: tuple[_Call | str | int | tuple[str, int], ...] = ()
    label: str = ""


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """The type that ClickHouse spells `text` (as in `system.columns`).

    Raises Permanent(reason="UnsupportedType") naming the text when the type is not known, cannot be loaded
    (AggregateFunction, Object, Variant, ...) or is not spelled correctly.
    """
    try:
        return _resolve(_Parser(text).whole())
    except (ValueError, IndexError, TypeError) as error:
        raise Permanent(f"ClickHouse type {text!r} is not supported: {error}", reason="UnsupportedType") from error


def type_names(text: str) -> frozenset[str]:
    """The names of a type and of all types inside it, as `system.data_type_families` has them: those of
    `Array(Nullable(UInt8))` are three. Empty for what cannot be read."""
    try:
        return frozenset(_names(_Parser(text).whole()))
    except (ValueError, IndexError):
        return frozenset()


def _names(call: _Call) -> Iterator[str]:
    yield call.name
    match call.name, call.arguments:
        case "SimpleAggregateFunction", (_Call(), *inner):  # the first one is a function
            pass
        case "Decimal", (int(precision), int()) if precision > DECIMAL_DIGITS["Decimal128"]:
            yield "Decimal256"
            inner = []
        case _:  # open: any other type
            inner = list(call.arguments)
    for argument in inner:
        if isinstance(argument, _Call):
            yield from _names(argument)


def column_type(table: str, column: ServerColumn) -> Type:
    """The column's type. Raises Permanent(reason="UnsupportedType") naming table and column."""
    try:
        return parse_type(column.type)
    except Permanent as error:
        raise Permanent(f"table {table}, column {column.name}: {error}", reason=error.reason) from error


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise ValueError(f"cannot be read from {text[position:]!r}")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        self._next = 0

    def whole(self) -> _Call:
        call = self._call()
        if self._next < len(self._tokens):
            raise ValueError(f"does not end after {call.name}")
        return call

    def _call(self, label: str = "") -> _Call:
        name = self._take("word")
        arguments: list[_Call | str | int | tuple[str, int]] = []
        if self._accept("("):
            while not self._accept(")"):
                arguments.append(self._argument())
                if not self._accept(",") and self._peek() != ("sign", ")"):
                    raise ValueError(f"lacks a comma or parenthesis in {name}")
        return _Call(name, tuple(arguments), label)

    def _argument(self) -> _Call | str | int | tuple[str, int]:
        kind, text = self._peek()
        if kind == "string":
            self._next += 1
            value = _unquote(text)
            return (value, int(self._take("number"))) if self._accept("=") else value
        if kind == "number":
            return int(self._take("number"))
        following = self._tokens[self._next + 1][0] if self._next + 1 < len(self._tokens) else ""
        return self._call(_unquote(self._take("word"))) if following == "word" else self._call()

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._next] if self._next < len(self._tokens) else ("end", "")

    def _take(self, kind: str) -> str:
        found, text = self._peek()
        if found != kind:
            raise ValueError(f"has {text or 'nothing'!r} where a {kind} is expected")
        self._next += 1
        return text

    def _accept(self, sign: str) -> bool:
        if self._peek() != ("sign", sign):
            return False
        self._next += 1
        return True


def _unquote(text: str) -> str:
    if text[0] not in "'`":
        return text
    return _ESCAPE.sub(lambda m: _ESCAPED.get(m[1], m[1]) if m[1] else "'", text[1:-1])


def _resolve(call: _Call) -> Type:
    match call.name, call.arguments:
        case "DateTime", (str(zone),):
            return date_time(zone)
        case name, () if name in PLAIN:
            return PLAIN[name]
        case "DateTime64", (int(precision),) if 0 <= precision <= 9:
            return date_time_64(precision)
        case "DateTime64", (int(precision), str(zone)) if 0 <= precision <= 9:
            return date_time_64(precision, zone)
        case "Time64", (int(precision),) if 0 <= precision <= 9:
            return time_64(precision)
        case "FixedString", (int(size),) if size > 0:
            return Fixed(size, Layout.PADDED, f"up to {size} bytes, filled up with zero bytes")
        case "Decimal", (int(precision), int(scale)):
            return _decimal(precision, scale)
        case ("Decimal32" | "Decimal64" | "Decimal128" | "Decimal256") as name, (int(scale),):
            return _decimal(DECIMAL_DIGITS[name], scale)
        case ("Enum8" | "Enum16") as name, codes if codes and all(isinstance(code, tuple) for code in codes):
            return enum(int(name.removeprefix("Enum")), tuple(code for code in codes if isinstance(code, tuple)))
        case "SimpleAggregateFunction", (_Call(), _Call() as stored):
            return _resolve(stored)
        case _:  # open: names that a server may send; _composed refuses those it does not know
            return _composed(call)


def _composed(call: _Call) -> Type:
    if call.name in _NOT_LOADED:
        raise ValueError(_NOT_LOADED[call.name])
    if call.name not in _COMPOSED:
        raise ValueError(f"{call.name} is unknown, cannot be loaded or has wrong arguments")
    inner = tuple(_resolve(argument) for argument in call.arguments if isinstance(argument, _Call))
    if len(inner) != len(call.arguments):
        raise ValueError(f"{call.name} has wrong arguments")
    match call.name, inner:
        case "Nullable", (leaf,) if isinstance(leaf, Leaf):
            return Nullable(leaf)
        case "LowCardinality", (leaf,) if isinstance(leaf, Leaf | Nullable):
            return LowCardinality(leaf)
        case "Array", (element,):
            return Array(element)
        case "Map", (key, value) if isinstance(plain(key), Leaf):
            return Map(key, value)
        case "Tuple", (_, *_):
            return _tuple(call, inner)
        case "Nested", (_, *_):
            return Array(_tuple(call, inner))
        case _:  # open: as above
            raise ValueError(f"{call.name} cannot hold these types")


def _tuple(call: _Call, elements: tuple[Type, ...]) -> Tuple:
    labels = [argument.label for argument in call.arguments if isinstance(argument, _Call)]
    return Tuple(tuple(label or str(n) for n, label in enumerate(labels, 1)), elements)


def _decimal(precision: int, scale: int) -> Decimal:
    if not 1 <= precision <= 76 or not 0 <= scale <= precision:
        raise ValueError(f"precision {precision} and scale {scale} are out of range")
    return Decimal(precision, scale)
