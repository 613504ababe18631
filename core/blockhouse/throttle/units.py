"""Rates as people write them. A bare number is refused: bytes were taken for megabytes too often."""

from __future__ import annotations

import re

_RATE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(k|Ki?|Mi?|Gi?)?(B|bit)?(/s)?\s*$")
_FACTOR = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
EXAMPLES = "50M, 50MB/s, 64Mi or 10Gbit/s"


def rate_of(text: str) -> int:
    """Bytes per second: `50M` and `50MB/s` are 50,000,000, `64Mi` is 67,108,864, `10Gbit/s` is 1,250,000,000.

    Raises ValueError in words.
    """
    match = _RATE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no rate: give for example {EXAMPLES}")
    number, factor, unit, _ = match.groups()
    if factor is None and unit is None:
        raise ValueError(f"{text!r} has no unit, and bytes are easily taken for megabytes: give for example {EXAMPLES}")
    found = float(number) * _FACTOR.get(factor or "", 1) / (8 if unit == "bit" else 1)
    if found < 1:
        raise ValueError(f"{text!r} is less than a byte per second: nothing would ever be copied")
    return round(found)
