"""Columns of text that stands for values of another type: each distinct text is read once, by `blockhouse.schema.text`.

A text without a time zone, for a column whose type names none, is UTC: a block must not depend on a server's settings.
"""

from __future__ import annotations

import math
import re
from typing import assert_never

import numpy as np
import pyarrow as pa

from blockhouse.schema.text import OutOfRange, decimal_of_text, fixed_of, integer_of
from blockhouse.schema.types import Decimal, Fixed, Float, Integer, Layout, Leaf, Proto, Text
from blockhouse_aggregator.wire.columns import Flaw, field_type

ZONE = "UTC"
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf}
_REASONS = ("UnknownEnumValue", "NotADecimal", "OutOfRange", "BadValue")

Value = int | float | bytes | str


class BadValue(ValueError):
    """A value that its column cannot hold; `reason` is CamelCase."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def value_of(text: str, leaf: Leaf) -> Value:
    """The text in the form in which a message of format `rows` would send it. Raises BadValue."""
    try:
        return _value_of(text, leaf)
    except (OutOfRange, OverflowError) as error:
        raise BadValue("OutOfRange") from error
    except LookupError as error:
        raise BadValue("UnknownEnumValue" if isinstance(leaf, Integer) and leaf.codes else "BadValue") from error
    except (ValueError, ArithmeticError) as error:
        raise BadValue("NotADecimal" if isinstance(leaf, Decimal) else "BadValue") from error


def _value_of(text: str, leaf: Leaf) -> Value:
    match leaf:
        case Integer(proto=Proto.BOOL):
            raise ValueError("a text is no truth value")
        case Integer():
            return integer_of(text, leaf, ZONE)
        case Float():
            return float_of(text, leaf)
        case Text() | Fixed(layout=Layout.PADDED):
            return text.encode()
        case Fixed():
            return fixed_of(text, leaf)
        case Decimal():
            return decimal_of_text(text, leaf)
        case _:
            assert_never(leaf)


def float_of(text: str, leaf: Float) -> float:
    """The nearest number of the type. Raises OutOfRange when only an infinity is near."""
    named = _NOT_FINITE.get(text.lower())
    if named is not None:
        return named
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is no number")
    return narrowed(float(text), leaf)


def narrowed(number: float, leaf: Float) -> float:
    """A finite number as it can be stored. Raises OutOfRange."""
    with np.errstate(over="ignore"):
        stored = float(np.float32(number)) if leaf.storage == "float32" else number
    if math.isinf(stored):
        raise OutOfRange(f"{number} is out of range")
    return stored


def read_texts(texts: pa.Array, leaf: Leaf) -> tuple[pa.Array, tuple[Flaw, ...]]:
    """Texts (UTF-8, as binary or string) in `field_type(leaf)`: null where they are null, or flawed."""
    encoded = texts.dictionary_encode()
    values: list[Value | None] = []
    reasons = np.zeros(len(encoded.dictionary), np.uint8)
    for index, raw in enumerate(encoded.dictionary.to_pylist()):
        try:
            values.append(value_of(raw.decode() if isinstance(raw, bytes) else raw, leaf))
        except UnicodeDecodeError:
            values.append(None)
            reasons[index] = _REASONS.index("BadValue") + 1
        except BadValue as bad:
            values.append(None)
            reasons[index] = _REASONS.index(bad.reason) + 1
    found = pa.array(values, field_type(leaf)).take(encoded.indices)
    if not reasons.any():
        return found, ()
    of_row = np.append(reasons, 0)[encoded.indices.fill_null(len(reasons)).to_numpy()]
    return found, tuple(Flaw(of_row == n, reason) for n, reason in enumerate(_REASONS, 1) if (of_row == n).any())
