"""What `docs/message-format.md` has on types and functions, written from the code itself: it cannot be wrong for long.

python -m blockhouse.schema.document docs/message-format.md      rewrites these parts in place
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import assert_never

from blockhouse.schema.functions import NOT_REPEATABLE, REPEATABLE
from blockhouse.schema.parse import parse_type
from blockhouse.schema.types import PLAIN, Decimal, Fixed, Float, Integer, Layout, Leaf, Proto, Text, Unit, plain

WIDTH = 120
WITH_PARAMETERS = (
    "DateTime64(3)",
    "DateTime64(9)",
    "Time64(3)",
    "FixedString(16)",
    "Decimal(9, 2)",
    "Decimal(18, 2)",
    "Decimal(38, 2)",
    "Decimal(76, 2)",
    "Enum8('a' = 1, 'b' = 2)",
    "Enum16('a' = 1, 'b' = 1000)",
)


def type_table() -> str:
    """Markdown: one line per leaf type, with the range beyond which a message is bad."""
    return "\n".join(_lines()) + "\n"


def spelling_table() -> str:
    """Markdown: one line per leaf type, with what the formats that name their columns send for it."""
    lines = ["| ClickHouse | `nucolumnar` | `json` |", "|---|---|---|"]
    lines += [f"| `{text}` | {_kinds(type_)} | {_spelled(type_)} |" for text, type_ in _leaves()]
    return "\n".join(lines) + "\n"


def functions(names: frozenset[str]) -> str:
    """The names as a paragraph of code."""
    text = textwrap.wrap(
        " ".join(sorted(names, key=lambda name: (name.lower(), name))), WIDTH - 4, break_on_hyphens=False
    )
    return "\n".join(f"    {line}" for line in text) + "\n"


def with_parts(page: str) -> str:
    """The page with everything between its marks replaced. Raises ValueError when a mark is missing."""
    for name, text in {
        "types": type_table(),
        "spellings": spelling_table(),
        "functions": functions(REPEATABLE),
        "changing functions": functions(NOT_REPEATABLE),
    }.items():
        before, begin, rest = page.partition(f"<!-- {name}: begin -->\n")
        _, end, after = rest.partition(f"<!-- {name}: end -->")
        if not begin or not end:
            raise ValueError(f"the page lacks the marks of its {name}")
        page = f"{before}{begin}{text}{end}{after}"
    return page


def _leaves() -> Iterator[tuple[str, Leaf]]:
    for text in (*PLAIN, *WITH_PARAMETERS):
        type_ = plain(parse_type(text))
        if isinstance(type_, Leaf):
            yield text, type_


def _lines() -> Iterator[str]:
    yield "| ClickHouse | protobuf | value | allowed | bytes stored |"
    yield "|---|---|---|---|---|"
    for text, type_ in _leaves():
        meaning = "one of its numbers" if text.startswith("Enum") else type_.meaning
        yield f"| `{text}` | `{type_.proto}` | {meaning} | {_allowed(type_)} | {_stored(type_)} |"


def _kinds(type_: Leaf) -> str:
    match type_:
        case Integer(proto=Proto.BOOL):
            return "bool, integer 0 or 1"
        case Integer(unit=Unit.DAY):
            return "timestamp (its UTC day), integer (days), string"
        case Integer(unit=Unit.TICK, precision=precision):
            coarse = ", its second" if precision < 3 else ""
            return f"timestamp{f' ({coarse[2:]})' if coarse else ''}, integer (ticks), string"
        case Integer(unit=(Unit.CODE | Unit.ADDRESS)):
            return "string, integer"
        case Integer():
            return "any integer, bool, string of digits"
        case Float(storage="float32"):
            return "double (the nearest), integer up to 2^24, string"
        case Float():
            return "double, integer up to 2^53, string"
        case Fixed(layout=(Layout.SIGNED | Layout.UNSIGNED)):
            return "any integer, string of digits"
        case Decimal():
            return "string, integer, double (its shortest digits)"
        case Text() | Fixed():
            return "string"
        case _:
            assert_never(type_)


def _spelled(type_: Leaf) -> str:
    match type_:
        case Integer(proto=Proto.BOOL):
            return "`true`, 0, 1"
        case Integer(unit=Unit.DAY):
            return '`"2024-01-31"`, days as a number'
        case Integer(unit=Unit.TICK):
            return '`"2024-01-31 23:59:59"`, also `T`, fraction, `Z` or `+01:00`; seconds as a number'
        case Integer(unit=Unit.CODE):
            return "name, number"
        case Integer(unit=Unit.ADDRESS):
            return '`"127.0.0.1"`, number'
        case Integer() | Fixed(layout=(Layout.SIGNED | Layout.UNSIGNED)):
            return "number, digits in quotes"
        case Float():
            return 'number, number in quotes, `"nan"`, `"inf"`, `"-inf"`'
        case Decimal():
            return "number, number in quotes; exact"
        case Fixed(layout=Layout.UUID):
            return '`"00112233-4455-6677-8899-aabbccddeeff"`'
        case Fixed(layout=Layout.ADDRESS):
            return '`"fe80::1"`'
        case Text() | Fixed():
            return "text"
        case _:
            assert_never(type_)


def _allowed(type_: Leaf) -> str:
    match type_:
        case Integer(unit=Unit.CODE, codes=codes):
            return ", ".join(str(code) for _, code in codes)
        case Integer(low=low, high=high):
            return f"{low} to {high}"
        case Decimal(precision=precision, scale=scale):
            return f"{precision - scale} digits before the point, {scale} after"
        case Fixed(size=size):
            return f"up to {size} bytes" if type_.layout == "padded" else f"exactly {size} bytes"
        case Float() | Text():
            return "all"
        case _:
            assert_never(type_)


def _stored(type_: Leaf) -> str:
    match type_:
        case Integer(storage=storage) | Float(storage=storage):
            return str(int(storage.lstrip("uintfloa")) // 8)
        case Text():
            return "length + bytes"
        case Fixed(size=size):
            return str(size)
        case Decimal():
            return str(type_.size)
        case _:
            assert_never(type_)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_parts(page.read_text()))
