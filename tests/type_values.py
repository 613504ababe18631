"""A value of a ClickHouse type as each format writes it and as a server then shows it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.format_messages import Kinds

ABSENT = object()
SKIP = object()
"""The format cannot express this value."""

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
NAN = float("nan")


@dataclass(frozen=True)
class Value:
    """What each format sends, and the text the server shows (or the reason why the message is bad)."""

    shown: str
    rows: Any = SKIP
    nucolumnar: Any = SKIP
    json: Any = SKIP


@dataclass(frozen=True)
class Case:
    """`zero` is shown where the column is absent; `default` is (expression, text shown, is it of 18.16 too)."""

    type: str
    zero: str
    good: Sequence[Value]
    bad: Sequence[Value] = ()
    default: tuple[str, str] | None = None
    old: bool = True
    nullable: bool = field(default=False)


def text(value: bytes) -> Kinds:
    return Kinds(string_value=value)


def number(shown: int, name: str = "long_value") -> Value:
    return Value(str(shown), shown, Kinds(**{name: shown}), shown)
