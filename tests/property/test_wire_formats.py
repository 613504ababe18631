"""Any bytes in any format: stored as a plain reader reads them, or dead; never more, and never with neighbours.

SEED=n repeats a run. `FUZZ=200000 pytest tests/property/test_wire_formats.py -k random_bytes -s` is the long one.
"""

from __future__ import annotations

import functools
import json
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from blockhouse.schema.proto import row_batch_class
from blockhouse_aggregator.wire.batch import DecodedBatch
from blockhouse_aggregator.wire.formats import Format, decoder
from blockhouse_aggregator.wire.json_lines import JsonDecoder
from blockhouse_aggregator.wire.nucolumnar_messages import request_class
from tests.format_messages import FORMATS, Digits, encode, history

INPUTS = int(os.environ.get("FUZZ", "6000"))
SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))
PORTION = 40

TABLE = history(
    {
        "n": "UInt64",
        "small": "Int8",
        "maybe": "Nullable(Int32)",
        "text": "LowCardinality(String)",
        "kind": "Enum8('a' = 1, 'b' = 3)",
        "code": "FixedString(2)",
        "amount": "Decimal(9, 2)",
        "ratio": "Float32",
        "at": "DateTime",
        "day": "Date",
        "fine": "DateTime64(3)",
        "tags": "Array(UInt16)",
        "deep": "Array(Array(Int8))",
        "holes": "Array(Nullable(Float64))",
        "five": "Nullable(UInt8) DEFAULT 5",
    }
)
REVISION = TABLE.revisions[0]
NAMES = tuple(column.name for column in REVISION.columns)


DECODERS = {form: decoder(Format(form), TABLE, REVISION, None) for form in FORMATS}


def decode(form: str, payloads: Sequence[bytes]) -> DecodedBatch:
    return DECODERS[form].decode(payloads)


def rows_of(batch: DecodedBatch) -> list[list[str]]:
    """The rows of each message, as text: NaN is not equal to itself."""
    lists = [column.to_pylist() for column in batch.columns.values()]
    texts = [repr(row) for row in zip(*lists, strict=True)]
    ends = np.cumsum(batch.rows_per_message).tolist()
    return [texts[end - count : end] for end, count in zip(ends, batch.rows_per_message.tolist(), strict=True)]


# --- messages ----------------------------------------------------------------------------------------------


def whole(rnd: random.Random) -> int:
    bits = rnd.choice((1, 3, 7, 8, 16, 31, 32, 33, 63))
    return rnd.randrange(-(1 << bits), 1 << bits) if rnd.random() < 0.5 else rnd.randrange(200)


def fraction(rnd: random.Random) -> float:
    return rnd.choice((0.5, -0.0, 1e300, 0.1, float(rnd.randrange(10**6)), rnd.random()))


def word(rnd: random.Random) -> str:
    return rnd.choice(("", "a", "b", "x y", "é", "1.5", "-7", "2024-01-01", "2024-01-01 10:00:00", "null", "nan", "\0"))


def kinds_value(rnd: random.Random, depth: int = 0) -> dict[str, Any]:
    match rnd.randrange(9 if depth < 2 else 8):
        case 0:
            return {"null_value": 0}
        case 1 | 2:
            return {rnd.choice(("int_value", "long_value")): whole(rnd)}
        case 3:
            return {rnd.choice(("uint_value", "ulong_value")): abs(whole(rnd))}
        case 4:
            return {"double_value": fraction(rnd)}
        case 5 | 6:
            return {"string_value": word(rnd).encode()}
        case 7:
            return rnd.choice(({"bool_value": rnd.random() < 0.5}, {"timestamp": abs(whole(rnd))}, {}))
        case _:
            return {"list_value": [kinds_value(rnd, depth + 1) for _ in range(rnd.randrange(3))]}


def json_value(rnd: random.Random, depth: int = 0) -> Any:
    match rnd.randrange(9 if depth < 2 else 8):
        case 0:
            return None
        case 1 | 2:
            return whole(rnd)
        case 3:
            return fraction(rnd)
        case 4:
            return Digits(rnd.choice(("1e2", "1.50", "1e400", "NaN", "-0", "01", "1.", "12345678901234567890", "1E-9")))
        case 5 | 6:
            return word(rnd)
        case 7:
            return rnd.random() < 0.5
        case _:
            return [json_value(rnd, depth + 1) for _ in range(rnd.randrange(3))]


FITTING: dict[str, Callable[[random.Random], Any]] = {
    "n": lambda r: r.randrange(1 << 40),
    "small": lambda r: r.randrange(-128, 128),
    "maybe": lambda r: r.randrange(-9, 9),
    "text": word,
    "kind": lambda r: r.choice("ab"),
    "code": lambda r: r.choice(("", "x", "yz")),
    "amount": lambda r: r.choice(("1.5", "-7", "0.01")),
    "ratio": lambda r: r.choice((0.5, 0.1, -2.0)),
    "at": lambda r: r.choice(("2024-01-01 10:00:00", "1970-01-01 00:00:00")),
    "day": lambda r: r.choice(("2024-01-01", "1970-01-01")),
    "fine": lambda r: r.choice(("2024-01-01 10:00:00.5", "1969-12-31 23:59:59")),
    "tags": lambda r: [r.randrange(1 << 16) for _ in range(r.randrange(3))],
    "deep": lambda r: [[r.randrange(128)] for _ in range(r.randrange(3))],
    "holes": lambda r: [r.choice((None, 1.5)) for _ in range(r.randrange(3))],
    "five": lambda r: r.choice((None, 7)),
}
SPOKEN = {int: "long_value", float: "double_value", bool: "bool_value"}


def as_kinds(value: Any) -> dict[str, Any]:
    """A value that fits its column, for `nucolumnar`."""
    if value is None:
        return {"null_value": 0}
    if isinstance(value, str):
        return {"string_value": value.encode()}
    if isinstance(value, list):
        return {"list_value": [as_kinds(item) for item in value]}
    return {SPOKEN[type(value)]: value}


def rows_row(rnd: random.Random) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name in rnd.sample(NAMES, rnd.choice((0, 1, 2, 4))):
        match name:
            case "text" | "code":
                row[name] = word(rnd).encode()
            case "amount":
                row[name] = rnd.choice(("1.5", "-7", "0.001", "x", "99999999"))
            case "ratio":
                row[name] = rnd.choice((0.5, -0.0, 0.1, float("nan")))
            case "tags":
                row[name] = [abs(whole(rnd)) for _ in range(rnd.randrange(3))]
            case "deep":
                row[name] = [{"value": [whole(rnd)]} for _ in range(rnd.randrange(3))]
            case "holes":
                row[name] = [rnd.choice(({}, {"value": 1.5})) for _ in range(rnd.randrange(3))]
            case "n" | "five" | "at" | "day":
                row[name] = abs(whole(rnd))
            case _:
                row[name] = whole(rnd)
    return row


def valid(form: str, rnd: random.Random) -> bytes:
    """A message whose framing is right and whose values mostly fit."""
    count = rnd.randrange(1, 4)
    if form == "rows":
        return encode(form, TABLE, [rows_row(rnd) for _ in range(count)])
    names = rnd.sample(NAMES, rnd.randrange(1, len(NAMES) + 1))
    wild: Callable[[random.Random], Any] = kinds_value if form == "nucolumnar" else json_value
    convert: Callable[[Any], Any] = as_kinds if form == "nucolumnar" else lambda value: value
    oddity = rnd.choice((0.0, 0.0, 0.05, 0.5))
    rows = []
    for _ in range(count):
        chosen = names if form == "nucolumnar" or rnd.random() < 0.7 else rnd.sample(names, rnd.randrange(len(names)))
        rows.append({n: wild(rnd) if rnd.random() < oddity else convert(FITTING[n](rnd)) for n in chosen})
    return encode(form, TABLE, rows)


def damaged(payload: bytes, rnd: random.Random) -> bytes:
    """Cut short, with bytes changed, put in, taken out or doubled."""
    found = bytearray(payload)
    for _ in range(rnd.randrange(1, 4)):
        at = rnd.randrange(len(found) + 1)
        match rnd.randrange(5):
            case 0:
                del found[at:]
            case 1:
                found[at : at + 1] = rnd.randbytes(1)
            case 2:
                found[at:at] = rnd.choice((rnd.randbytes(2), b"\n", b"}\n{", b'"', b"null", b"\x0a\x00", b","))
            case 3:
                del found[at : at + rnd.randrange(4)]
            case _:
                found[at:at] = found[: rnd.randrange(20)]
    return bytes(found)


def some_message(form: str, rnd: random.Random) -> bytes:
    match rnd.randrange(10):
        case 0:
            return rnd.randbytes(rnd.randrange(12))
        case 1 | 2 | 3:
            return damaged(valid(form, rnd), rnd)
        case _:
            return valid(form, rnd)


# --- what a plain reader reads -----------------------------------------------------------------------------


def check_against_json(payload: bytes, verdict: str, stored: int) -> None:
    """Python's reader, with the strictness that the standard has."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        lines = [line for line in payload.decode().split("\n") if line.strip(" \t\r")]
        rows = [json.loads(line, parse_constant=refuse) for line in lines]
    except (ValueError, RecursionError):
        assert verdict == "Undecodable"
        return
    if all(isinstance(row, dict) for row in rows):
        assert verdict or stored == len(rows)
    else:
        assert verdict == "Undecodable"


def check_against_protobuf(
    message: Callable[[], Any], count: Callable[[Any], int], payload: bytes, verdict: str, stored: int
) -> None:
    found = message()
    try:
        found.ParseFromString(payload)
    except DecodeError:
        assert verdict == "Undecodable"
        return
    size = found.ByteSize()
    found.DiscardUnknownFields()
    if found.ByteSize() != size:
        assert verdict == "UnknownField"
    else:
        assert verdict not in ("Undecodable", "UnknownField")
        assert verdict or stored == count(found)


@functools.cache
def checker(form: str) -> Callable[[bytes, str, int], None]:
    if form == "json":
        return check_against_json
    if form == "rows":
        message = row_batch_class(TABLE, REVISION, wide=True)
        return functools.partial(check_against_protobuf, message, lambda found: len(found.rows))
    return functools.partial(
        check_against_protobuf, request_class(2), lambda found: len(found.nucolumnarEncoding.batch_bindings)
    )


@pytest.mark.parametrize("form", FORMATS)
def test_random_bytes_are_stored_as_a_plain_reader_reads_them_or_dead(form: str) -> None:
    print(f"SEED={SEED}")
    rnd = random.Random(f"{SEED} {form}")
    slow = JsonDecoder(TABLE, REVISION)
    slow._fast = False
    dead = 0
    for _ in range(-(-INPUTS // len(FORMATS) // PORTION)):
        payloads = [some_message(form, rnd) for _ in range(PORTION)]
        # given a portion of messages of which many are broken
        together = decode(form, payloads)
        stored, verdicts = rows_of(together), {bad.index: bad for bad in together.bad}
        dead += len(verdicts)
        for index, payload in enumerate(payloads):
            verdict = verdicts[index].reason if index in verdicts else ""
            assert not (verdict and stored[index])
            # then each is judged as a plain reader does
            checker(form)(payload, verdict, len(stored[index]))
        # and as if it had come with other neighbours
        order = rnd.sample(range(PORTION), PORTION // 4)
        again = decode(form, [payloads[index] for index in order])
        assert rows_of(again) == [stored[index] for index in order]
        assert [(order[bad.index], bad.reason, bad.detail) for bad in again.bad] == [
            (index, verdicts[index].reason, verdicts[index].detail) for index in order if index in verdicts
        ]
        if form == "json":
            # and whichever of the two readers has read it
            one_by_one = slow.decode(payloads)
            assert rows_of(one_by_one) == stored
            assert one_by_one.bad == together.bad
    assert 0.1 < dead / (INPUTS / len(FORMATS)) < 0.9, "neither all good nor all bad"


def test_the_reader_of_json_takes_the_fast_path_where_it_can() -> None:
    rnd = random.Random(1)
    names = [name for name in NAMES if name not in ("five", "maybe", "holes")]
    rows = [{name: FITTING[name](rnd) for name in names} for _ in range(300)]
    payloads = [encode("json", TABLE, [row]) for row in rows]
    found = JsonDecoder(TABLE, REVISION)
    assert found.decode(payloads).bad == ()
    assert found._fast
    # and does without it where it cannot
    quoted = [encode("json", TABLE, [row | {"small": str(row["small"])}]) for row in rows[:100]]
    assert found.decode(payloads[:1] + quoted).bad == ()
    assert not found._fast
