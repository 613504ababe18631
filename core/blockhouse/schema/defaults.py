"""The value of a column that a message does not have, where it is a constant: literals and plain conversions of them.

The result has the form in which a message would send it. Whatever is not certainly the same on every server and at
every time is refused by name, never approximated. Expressions could be evaluated by the server itself:
`constant_default` is the one place that would have to know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal as Number
from functools import lru_cache
from typing import assert_never

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from blockhouse.errors import Permanent
from blockhouse.schema.kinds import bare, is_repeated
from blockhouse.schema.model import Column, DefaultKind
from blockhouse.schema.parse import parse_type
from blockhouse.schema.text import decimal_of, fixed_of, integer_of
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
    Text,
    Tuple,
    Type,
    Unit,
    plain,
    zero,
)

Constant = int | float | bytes | str | None


@dataclass(frozen=True, slots=True)
class _Typed:
    """The result of a conversion to a type whose number means nothing without it, such as Date."""

    value: Constant
    type: Leaf


_Literal = int | Number | str | None | tuple[()] | _Typed

_CONVERSION = re.compile(
    r"to(U?Int(?:8|16|32|64|128|256)|Float32|Float64|String|Date|Date32|DateTime|UUID|IPv4|IPv6|Bool"
    r"|DateTime64|FixedString|Decimal(?:32|64|128|256))"
)


@lru_cache(maxsize=4096)
def constant_default(table: str, column: Column) -> Constant:
    """What stands in `column` when a message lacks it; None is NULL, and of no meaning for Array, Map and Tuple.

    Raises Permanent(reason="UnsupportedDefault") naming table, column and expression when the default is no constant.
    """
    type_ = plain(parse_type(column.type))
    if column.default_kind is not DefaultKind.DEFAULT:
        return zero(type_)
    try:
        return _convert(_evaluate(sqlglot.parse_one(column.default_expression, dialect="clickhouse")), type_)
    except (SqlglotError, Permanent, ValueError, ArithmeticError, LookupError) as error:
        raise Permanent(
            f"table {table}: DEFAULT {column.default_expression} of column {column.name} ({column.type}) is not a "
            f"constant that can be filled in here ({error}). Use a constant, let producers send it, or "
            "derive it from the row, e.g. DEFAULT cityHash64(id)",
            reason="UnsupportedDefault",
        ) from error


def _evaluate(node: exp.Expr) -> _Literal:
    match node:
        case exp.Literal():
            return str(node.this) if node.is_string else _number(node.this)
        case exp.Neg(this=exp.Literal(is_string=False) as digits):
            return -_number(digits.this)
        case exp.Null():
            return None
        case exp.Boolean():
            return int(node.this)
        case exp.Paren():
            return _evaluate(node.this)
        case exp.Cast():
            return _cast(node.this, node.to.sql("clickhouse"))
        case exp.CastToStrType():
            return _cast(node.this, node.args["to"].name)
        case exp.Array(expressions=[]) | exp.VarMap(args={"keys": exp.Array(expressions=[])}):
            return ()
        case exp.Anonymous(this=str(name), expressions=arguments):
            return _call(name, arguments)
        case _:  # open: sqlglot's nodes, of which only literals and conversions are taken
            raise ValueError("not a literal")


def _number(digits: str) -> int | Number:
    number = Number(digits)
    return int(number) if number == number.to_integral_value() and "e" not in digits.lower() else number


def _call(name: str, arguments: list[exp.Expr]) -> _Literal:
    if name in ("toLowCardinality", "toNullable") and len(arguments) == 1:
        return _evaluate(arguments[0])
    if name == "_CAST" and len(arguments) == 2:
        return _cast(arguments[0], arguments[1].name)
    if name.startswith("emptyArray") and not arguments:
        return ()
    if (conversion := _CONVERSION.fullmatch(name)) and arguments:
        value, *parameters = arguments
        spelled = ", ".join(parameter.sql("clickhouse") for parameter in parameters)
        return _cast(value, f"{conversion[1]}({spelled})" if spelled else conversion[1])
    raise ValueError(f"{name} is not a conversion of a literal")


def _cast(value: exp.Expr, text: str) -> _Literal:
    leaf = bare(parse_type(text))
    literal = _evaluate(value)
    if is_repeated(leaf) or literal is None:
        return literal
    converted = _convert(literal, leaf)
    match leaf:
        case Integer(unit=Unit.NUMBER) if isinstance(converted, int):
            return converted
        case Decimal() if isinstance(converted, str):
            return Number(converted)
        case Text() if isinstance(converted, bytes):
            return converted.decode()
        case Integer() | Fixed() | Float():
            return _Typed(converted, leaf)
        case Decimal() | Text() | Array() | Map() | Tuple():
            pass
        case _:
            assert_never(leaf)
    raise ValueError(f"a conversion to {text}")


def _convert(literal: _Literal, type_: Type) -> Constant:
    """The literal as a message would send it to a column of `type_`. ValueError when it does not fit exactly."""
    target = plain(type_)
    if isinstance(literal, _Typed) and _same(literal.type, target):
        return literal.value
    match target:
        case Nullable(inner=leaf):
            return None if literal is None else _convert(literal, leaf)
        case Array() | Map() if literal == ():
            return None
        case Integer() if isinstance(literal, int | Number | str):
            return _integer(literal, target)
        case Float() if isinstance(literal, int | Number | str):
            return float(literal)
        case Decimal() if isinstance(literal, int | Number | str):
            return decimal_of(Number(literal), target)
        case Text() if isinstance(literal, int | str):
            return str(literal).encode()
        case Fixed(layout=Layout.PADDED, size=size) if isinstance(literal, str) and len(literal.encode()) > size:
            pass
        case Fixed() if isinstance(literal, int | str):
            return fixed_of(literal, target)
        case Integer() | Float() | Decimal() | Text() | Fixed() | Array() | Map() | Tuple():
            pass
        case _:
            assert_never(target)
    raise ValueError(f"{literal!r} does not fit the type")


def _same(one: Leaf, other: Type) -> bool:
    """A time zone changes how a DateTime is shown, not what is stored."""
    if isinstance(one, Integer) and isinstance(other, Integer):
        return replace(one, zone="") == replace(other, zone="")
    return one == other


def _integer(literal: int | Number | str, type_: Integer) -> int:
    if isinstance(literal, str):
        number = integer_of(literal, type_)
    elif literal != int(literal):
        raise ValueError(f"{literal} is not a whole number")
    else:
        number = int(literal) * (10**type_.precision if type_.unit is Unit.TICK else 1)
    if not type_.low <= number <= type_.high or (type_.codes and number not in dict(type_.codes).values()):
        raise ValueError(f"{literal} is out of range")
    return number
