"""Integers of 128 and 256 bits, which 18.16 does not have. See `tests/type_cases.py`."""

from __future__ import annotations

from tests.format_messages import Digits, Kinds
from tests.type_values import SKIP, Case, Value, text

WIDE: list[Case] = [
    Case(
        "Int128",
        "0",
        [
            Value("-5", (-5).to_bytes(16, "little", signed=True), Kinds(long_value=-5), -5),
            Value(
                str(-(1 << 127)), (1 << 127).to_bytes(16, "little"), text(str(-(1 << 127)).encode()), str(-(1 << 127))
            ),
        ],
        [
            Value("WrongLength", bytes(15)),
            Value("OutOfRange", SKIP, text(str(1 << 127).encode()), Digits(str(1 << 127))),
        ],
        ("-7", "-7"),
        old=False,
    ),
    Case(
        "Int256",
        "0",
        [Value(str(-(1 << 255)), (1 << 255).to_bytes(32, "little"), text(str(-(1 << 255)).encode()), str(-(1 << 255)))],
        [Value("WrongLength", bytes(16)), Value("OutOfRange", SKIP, SKIP, Digits(str(1 << 255)))],
        ("-7", "-7"),
        old=False,
    ),
    Case(
        "UInt128",
        "0",
        [Value(str(1 << 127), (1 << 127).to_bytes(16, "little"), text(str(1 << 127).encode()), Digits(str(1 << 127)))],
        [Value("OutOfRange", SKIP, Kinds(long_value=-1), -1)],
        ("5", "5"),
        old=False,
    ),
    Case(
        "UInt256",
        "0",
        [Value(str(1 << 255), (1 << 255).to_bytes(32, "little"), text(str(1 << 255).encode()), Digits(str(1 << 255)))],
        [Value("OutOfRange", SKIP, Kinds(long_value=-1), -1)],
        ("5", "5"),
        old=False,
    ),
]
