"""The table of types in `docs/message-format.md`, written from the types themselves: it cannot be wrong for long.

python -m blockhouse.schema.document docs/message-format.md      rewrites the table in place
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from blockhouse.schema.parse import parse_type
from blockhouse.schema.types import PLAIN, Decimal, Fixed, Float, Integer, Leaf, Text, Unit, plain

BEGIN, END = "<!-- types: begin -->", "<!-- types: end -->"
WITH_PARAMETERS = (
    "DateTime64(3)",
    "DateTime64(9)",
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


def with_table(text: str) -> str:
    """The page with the table between its marks replaced. Raises ValueError when the marks are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n{type_table()}{END}{after}"


def _lines() -> Iterator[str]:
    yield "| ClickHouse | protobuf | value | allowed | bytes stored |"
    yield "|---|---|---|---|---|"
    for text in (*PLAIN, *WITH_PARAMETERS):
        type_ = plain(parse_type(text))
        if isinstance(type_, Integer | Float | Text | Fixed | Decimal):
            meaning = "one of its numbers" if text.startswith("Enum") else type_.meaning
            yield f"| `{text}` | `{type_.proto}` | {meaning} | {_allowed(type_)} | {_stored(type_)} |"


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
        case _:
            return "all"


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


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_table(page.read_text()))
