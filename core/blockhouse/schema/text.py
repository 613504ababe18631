"""Text that stands for a value: dates, addresses, names of an Enum, decimal digits, UUIDs.

Read by the same rules wherever text comes from: a DEFAULT, a JSON message, a string in another format. What does not
fit exactly is a ValueError, never a near value. Pure.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal as Number
from ipaddress import IPv4Address, IPv6Address
from typing import assert_never
from uuid import UUID
from zoneinfo import ZoneInfo

from blockhouse.schema.types import Decimal, Fixed, Integer, Layout, Unit

_EPOCH = datetime(1970, 1, 1)
_TIME = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)"
    r"(?:[ T](?P<time>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class OutOfRange(ValueError):
    """The text is a value, but not one that the type can hold."""


def integer_of(text: str, type_: Integer, zone: str = "") -> int:
    """The number that `text` stands for. `zone` is meant where neither text nor type names a time zone.

    Raises ValueError (OutOfRange when the type cannot hold it), KeyError for a name that an Enum does not have.
    """
    match type_.unit:
        case Unit.CODE:
            return dict(type_.codes)[text]
        case Unit.ADDRESS:
            return int(IPv4Address(text))
        case Unit.NUMBER:
            if not _WHOLE.fullmatch(text):
                raise ValueError(f"{text!r} is not a whole number")
            number = int(text)
        case Unit.DAY | Unit.TICK:
            number = _moment(text, type_, zone)
        case unreachable:
            assert_never(unreachable)
    if not type_.low <= number <= type_.high:
        raise OutOfRange(f"{text!r} is out of range")
    return number


def _moment(text: str, type_: Integer, zone: str) -> int:
    parts = _TIME.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text!r} is not a date or time")
    if type_.unit is Unit.DAY:
        if parts["time"]:
            raise ValueError(f"{text!r} is not a date")
        return (datetime.fromisoformat(text) - _EPOCH).days
    fraction = parts["fraction"] or ""
    if len(fraction) > type_.precision:
        raise ValueError(f"{text!r} has too many digits for the type")
    moment = datetime.fromisoformat(f"{parts['day']} {parts['time'] or '00:00:00'}")
    seconds = (moment - _EPOCH - _utc_offset(moment, parts["zone"] or type_.zone or zone)) // timedelta(seconds=1)
    ticks: int = seconds * 10**type_.precision + int(fraction.ljust(type_.precision, "0") or 0)
    return ticks


def _utc_offset(moment: datetime, zone: str) -> timedelta:
    if not zone:
        raise ValueError("its meaning depends on the server's time zone: give the type a time zone")
    if zone in ("Z", "UTC"):
        return timedelta(0)
    if zone[0] in "+-":
        found = datetime.fromisoformat(f"1970-01-01 00:00:00{zone}").utcoffset()
        assert found is not None
        return found
    early, late = (moment.replace(tzinfo=ZoneInfo(zone), fold=fold).utcoffset() for fold in (0, 1))
    there_and_back = moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).astimezone(ZoneInfo(zone))
    if early is None or early != late or there_and_back.replace(tzinfo=None) != moment:
        raise ValueError(f"{moment} exists twice or never in {zone}")
    return early


def decimal_of_text(text: str, type_: Decimal) -> str:
    """Plain text of exactly the number that `text` stands for, with or without an exponent. Raises ValueError when it
    is no number, or has more digits than the type; zeros at the end of the fraction are none."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"{text!r} is no decimal number")
    return decimal_of(Number(text), type_)


def decimal_of(number: Number, type_: Decimal) -> str:
    """Plain text of exactly `number`. Raises ValueError when it has more digits than the type."""
    if number.is_zero():
        return "0"
    if not number.is_finite() or not -type_.scale <= number.adjusted() < type_.precision - type_.scale:
        raise ValueError(f"{number} does not fit")
    text = f"{number:f}"
    digits, _, fraction = text.lstrip("-").partition(".")
    if len(digits.lstrip("0")) > type_.precision - type_.scale or len(fraction.rstrip("0")) > type_.scale:
        raise ValueError(f"{text} does not fit")
    return text if not fraction else text[: len(text) - len(fraction) + type_.scale].rstrip(".")


def fixed_of(literal: int | str, type_: Fixed) -> bytes:
    """The bytes as a message of format `rows` would send them. Raises ValueError or OverflowError."""
    text = literal if isinstance(literal, str) else ""
    match type_.layout:
        case Layout.SIGNED | Layout.UNSIGNED if isinstance(literal, int):
            return literal.to_bytes(type_.size, "little", signed=type_.layout is Layout.SIGNED)
        case Layout.SIGNED | Layout.UNSIGNED if _WHOLE.fullmatch(text) and len(text) < 100:
            return fixed_of(int(text), type_)
        case Layout.UUID if _UUID.fullmatch(text):
            return UUID(text).bytes
        case Layout.ADDRESS if isinstance(literal, str) and "%" not in text:
            return IPv6Address(text).packed
        case Layout.PADDED if isinstance(literal, str):
            return text.encode()
        case Layout.SIGNED | Layout.UNSIGNED | Layout.UUID | Layout.ADDRESS | Layout.PADDED:
            pass
        case unreachable:
            assert_never(unreachable)
    raise ValueError(f"{literal!r} does not fit the type")
