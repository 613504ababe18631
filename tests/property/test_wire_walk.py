"""Walking rows side by side: what it takes has the values that others read; what it cannot understand it leaves.

SEED=n repeats a run; `FUZZ=200000 pytest tests/property/test_wire_walk.py -k changed -s` is the long one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

import pytest

from blockhouse.schema.history import first_revision
from blockhouse.schema.model import Revision, ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse_aggregator.wire.batch import BadMessage
from blockhouse_aggregator.wire.native import encode_block
from blockhouse_aggregator.wire.rows import RowsDecoder
from blockhouse_aggregator.wire.varints import varint

INPUTS = int(os.environ.get("FUZZ", "6000"))
SEED = int(os.environ.get("SEED", random.randrange(1 << 32)))
PORTION = 8
TYPES = (
    *("Int64", "String", "UInt64", "String", "Float64", "Float32", "Bool", "String", "Int8", "Nullable(UInt16)"),
    *("LowCardinality(String)", "Decimal(9, 2)", "String DEFAULT 'x'", "Nullable(String)", "FixedString(2)"),
    *("Enum8('a' = 1, 'b' = 3)", "String", "String", "DateTime64(3)", "String"),
)


def history() -> TableHistory:
    columns = []
    for number, text in enumerate(TYPES):
        type_, _, default = text.partition(" DEFAULT ")
        column = ServerColumn(name=f"c{number}", type=type_)
        columns.append(
            column.model_copy(update={"default_kind": "DEFAULT", "default_expression": default}) if default else column
        )
    return TableHistory(id=1, name="db.t", revisions=(first_revision(columns),))


TABLE = history()
REVISION: Revision = TABLE.revisions[0]
MESSAGE: Any = row_batch_class(TABLE, REVISION, wide=True)
HEADER = [(column.name, column.type) for column in REVISION.row]


def decoders() -> tuple[RowsDecoder, RowsDecoder]:
    """One that walks however little there is, and one that never does."""
    walking, other = RowsDecoder(TABLE, REVISION), RowsDecoder(TABLE, REVISION)
    assert walking._walk is not None
    walking._walk.least_bytes = 0
    other._walk = None
    return walking, other


WALKING, OTHER = decoders()


def walked(payloads: Sequence[bytes]) -> bool:
    assert WALKING._walk is not None
    return WALKING._walk.read(payloads) is not None


def outcome(decoder: RowsDecoder, payloads: Sequence[bytes]) -> tuple[bytes, list[int], tuple[BadMessage, ...]]:
    batch = decoder.decode(payloads)
    rows = int(batch.rows_per_message.sum())
    return encode_block(HEADER, batch.columns) if rows else b"", batch.rows_per_message.tolist(), batch.bad


def whole(rnd: random.Random, low: int, high: int) -> int:
    bits = rnd.choice((1, 7, 8, 14, 21, 31, 42, 48, 49, 55, 56, 57, 62, 63, 64))
    return max(low, min(high, rnd.choice((1, -1)) * rnd.randrange(1 << bits)))


def words(rnd: random.Random) -> bytes:
    return rnd.randbytes(
        rnd.choice((0, 1, 5, 127, 128, 300, 16383, 16384)) if rnd.random() < 0.05 else rnd.randrange(9)
    )


def value(rnd: random.Random, type_: str) -> Any:
    match type_.partition("(")[0]:
        case "Int64" | "DateTime64":
            return whole(rnd, -(1 << 63), (1 << 63) - 1)
        case "UInt64":
            return abs(whole(rnd, 0, (1 << 64) - 1))
        case "Float64" | "Float32":
            return rnd.choice((0.5, -0.0, float("inf"), float(rnd.randrange(10**6))))
        case "Bool":
            return rnd.random() < 0.5
        case "Decimal":
            return rnd.choice(("1.5", "-7", "0.01", "x"))
        case "Int8":
            return rnd.randrange(-128, 128) if rnd.random() < 0.95 else 1 << 40
        case "FixedString":
            return rnd.choice((b"", b"a", b"ab", b"abc"))
        case "Enum8":
            return rnd.choice((1, 3, 3, 3, 2))
        case _:
            return words(rnd) if "String" in type_ else rnd.randrange(1 << 16)


def message(rnd: random.Random, kept: float) -> bytes:
    """As the official runtime writes it; each field is there with this probability."""
    batch = MESSAGE()
    for _ in range(rnd.randrange(4)):
        row = batch.rows.add()
        for field, (_, type_) in zip(row.DESCRIPTOR.fields, HEADER, strict=True):
            if rnd.random() < kept:
                inner = type_.removeprefix("Nullable(").removeprefix("LowCardinality(")
                setattr(row, field.name, value(rnd, inner))
    return bytes(batch.SerializeToString())


def changed(payload: bytes, rnd: random.Random) -> bytes:
    """Bytes changed, put in, taken out; or a whole row of other bytes, rightly framed."""
    found = bytearray(payload)
    if rnd.random() < 0.3:
        row = bytearray(payload[2:]) if rnd.random() < 0.7 else bytearray(rnd.randbytes(rnd.randrange(12)))
        for _ in range(rnd.randrange(3)):
            at = rnd.randrange(len(row) + 1)
            row[at : at + 1] = rnd.randbytes(1)
        return bytes(found) + b"\x0a" + varint(len(row)) + bytes(row)
    for _ in range(rnd.randrange(1, 3)):
        at = rnd.randrange(len(found) + 1)
        match rnd.randrange(4):
            case 0:
                found[at : at + 1] = rnd.randbytes(1)
            case 1:
                found[at:at] = rnd.choice((b"\x80", b"\x00", b"\x12\x00", b"\x08\x01", rnd.randbytes(2)))
            case 2:
                del found[at : at + rnd.randrange(1, 4)]
            case _:
                found[at : at + 1] = bytes([found[at] ^ (1 << rnd.randrange(8))]) if at < len(found) else b""
    return bytes(found)


@pytest.mark.parametrize("kept", [1.0, 0.9, 0.5, 0.05, 0.0])
def test_what_the_official_runtime_writes_is_walked_and_read_as_by_others(kept: float) -> None:
    print(f"SEED={SEED}")
    rnd = random.Random(f"{SEED} {kept}")
    for _ in range(60):
        payloads = [message(rnd, kept) for _ in range(PORTION)]
        assert walked(payloads) == any(payloads)
        assert outcome(WALKING, payloads) == outcome(OTHER, payloads)


def test_changed_bytes_are_judged_as_by_others_whether_they_are_walked_or_not() -> None:
    print(f"SEED={SEED}")
    rnd = random.Random(SEED)
    taken = 0
    rounds = -(-INPUTS // PORTION)
    for number in range(rounds):
        # given messages of which one is not as it was written
        payloads = [message(rnd, rnd.choice((1.0, 0.7))) for _ in range(PORTION)]
        payloads[rnd.randrange(PORTION)] = changed(message(rnd, 1.0), rnd)
        taken += walked(payloads)
        # then it cannot be seen which reader has read them
        assert outcome(WALKING, payloads) == outcome(OTHER, payloads), f"SEED={SEED}, round {number}"
    print(f"{rounds * PORTION} messages, {taken} of {rounds} batches walked")
    assert 0.02 < taken / rounds < 0.98, "neither never nor always walked"


def row(*fields: tuple[int, int, bytes]) -> bytes:
    """A message of one row: (number, wire type, raw value) in this order."""
    content = b"".join(varint(number << 3 | wire) + raw for number, wire, raw in fields)
    return b"\x0a" + varint(len(content)) + content


@pytest.mark.parametrize(
    "odd",
    [
        row((2, 2, b"\x01a"), (1, 0, b"\x05")),  # another order
        row((1, 0, b"\x05"), (1, 0, b"\x06")),  # twice
        row((1, 0, b"\x05"), (99, 0, b"\x01")),  # unknown
        row((1, 5, b"abcd")),  # another wire type
        row((2, 2, b"\x81\x00a")),  # a length of more bytes than it needs
        row((2, 2, b"\x05a")),  # more than there is
        row((2, 2, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7fa")),  # far more
        row((7, 0, b"\x02")),  # a bool that is neither
        row((3, 0, b"\xff" * 9 + b"\x7f")),  # more than 64 bits
        row((12, 2, b"\x01\xff")),  # no UTF-8
        b"\x0a\x80\x00",  # a frame longer than it has to be
        b"\x10\x01",  # beside the rows
        b"\x0a\x05\x08",  # cut short
    ],
)
def test_a_row_that_no_plain_writer_writes_is_left_to_others(odd: bytes) -> None:
    usual = [message(random.Random(1), 1.0) for _ in range(5)]
    assert walked(usual)
    assert not walked([*usual, odd])
    assert outcome(WALKING, [*usual, odd]) == outcome(OTHER, [*usual, odd])
