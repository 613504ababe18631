"""Durations, sizes and parts of a whole as people write them: one grammar for configuration files and custom resources.

A setting is a number in Python (seconds, bytes, 0.7) and may be a text in YAML; a custom resource has the text only.
Pure.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

DURATION = r"^(\d+(?:\.\d+)?)(ms|s|m|h)$"
"""`500ms`, `10s`, `5m`, `1h`."""
_WITH_DAYS = DURATION.replace("|h)", "|h|d)")
SIZE = r"^(\d+)(Ki|Mi|Gi|Ti)?$"
"""Bytes, or with Ki, Mi, Gi, Ti."""
PERCENT = r"^(\d+(?:\.\d+)?)%$"
"""`70%`, `2.5%`."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def seconds(duration: str) -> float:
    """The seconds of a duration: `500ms` is 0.5. Raises ValueError."""
    match = re.match(DURATION, duration)
    if match is None:
        raise ValueError(f"{duration!r} is no duration: expected a number with ms, s, m or h")
    return float(match[1]) * _SECONDS[match[2]]


def time_span(text: str) -> float:
    """The seconds of a time above zero that a person writes on a command line, where days are a unit too: `2d` is
    172800. Raises ValueError."""
    match = re.match(_WITH_DAYS, text)
    if match is None:
        raise ValueError(f"{text!r} is no duration: expected a number with ms, s, m, h or d, such as 2h")
    found = float(match[1]) * _SECONDS[match[2]]
    if found == 0:
        raise ValueError(f"{text!r} is no time at all")
    return found


def duration_text(value: float) -> str:
    """A duration of so many seconds, with the largest unit that needs no fraction: 0.5 is `500ms`, 60 is `1m`."""
    milliseconds = round(value * 1000)
    for unit in ("h", "m", "s"):
        whole = round(_SECONDS[unit] * 1000)
        if milliseconds and milliseconds % whole == 0:
            return f"{milliseconds // whole}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


def size_bytes(size: str) -> int:
    """The bytes of a size: `10Mi` is 10485760. Raises ValueError."""
    match = re.match(SIZE, size)
    if match is None:
        raise ValueError(f"{size!r} is no size: expected bytes, or a number with Ki, Mi, Gi or Ti")
    return int(match[1]) * _BYTES[match[2] or ""]


def size_text(value: int) -> str:
    """A size of so many bytes, with the largest unit that needs no fraction: 10485760 is `10Mi`."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if value and value % _BYTES[unit] == 0:
            return f"{value // _BYTES[unit]}{unit}"
    return str(value)


def fraction(percent: str) -> float:
    """The part that a percentage is: `70%` is 0.7. Raises ValueError."""
    match = re.match(PERCENT, percent)
    if match is None:
        raise ValueError(f"{percent!r} is no percentage: expected a number with %")
    return float(match[1]) / 100


def percent_text(value: float) -> str:
    """A part of a whole as a percentage: 0.7 is `70%`."""
    return f"{round(value * 100, 6):g}%"


def _seconds_of(value: object) -> object:
    return seconds(value) if isinstance(value, str) and re.match(DURATION, value) else value


def _bytes_of(value: object) -> object:
    return size_bytes(value) if isinstance(value, str) and re.match(SIZE, value) else value


def _fraction_of(value: object) -> object:
    return fraction(value) if isinstance(value, str) and re.match(PERCENT, value) else value


IS_DURATION, IS_SIZE = BeforeValidator(_seconds_of), BeforeValidator(_bytes_of)
IS_FRACTION = BeforeValidator(_fraction_of)
"""Marks in a field's metadata, by which its unit is recognised."""
Duration = Annotated[float, IS_DURATION]
"""Seconds: a number, or a text with ms, s, m or h."""
Size = Annotated[int, IS_SIZE]
"""Bytes: a number, or a text with Ki, Mi, Gi or Ti."""
Fraction = Annotated[float, IS_FRACTION]
"""A part of a whole: a number such as 0.7, or a text with %."""
