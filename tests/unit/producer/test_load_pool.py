"""Generated messages: the same for the same seed, canonical, every row distinct, and bad in exactly one way."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from blockhouse.producer.rows import RowEncoder
from blockhouse.schema.model import Column, Revision, TableHistory
from blockhouse.schema.parse import parse_type
from blockhouse.schema.proto import row_batch_class
from blockhouse_aggregator.produce import Kind, LoadSpec, MessagePool
from blockhouse_aggregator.produce.samples import sample

TYPES = ("String", "UInt64", "Nullable(Int32)", "Array(String)", "DateTime", "Enum8('a' = 1, 'b' = 2)", "Decimal(9, 2)")
TABLE = TableHistory(
    id=1,
    name="db.t",
    revisions=(
        Revision(number=1, columns=tuple(Column(name=f"c{i}", type=t, field=i) for i, t in enumerate(TYPES, 1))),
    ),
)


def parsed(payload: bytes) -> Any:
    batch: Any = row_batch_class(TABLE, TABLE.revisions[0])()
    batch.ParseFromString(payload)
    return batch


def test_the_same_seed_gives_the_same_messages() -> None:
    one, two, other = MessagePool(TABLE, 7), MessagePool(TABLE, 7), MessagePool(TABLE, 8)

    first = [one.message(3) for _ in range(5)]

    assert first == [two.message(3) for _ in range(5)]
    assert first != [other.message(3) for _ in range(5)]


def test_messages_are_the_bytes_the_official_runtime_writes() -> None:
    payload = MessagePool(TABLE, 7).message(10)

    batch = parsed(payload)

    assert len(batch.rows) == 10
    assert batch.SerializeToString(deterministic=True) == payload


def test_no_two_rows_are_alike() -> None:
    pool = MessagePool(TABLE, 7)

    numbers = [row.c2 for _ in range(200) for row in parsed(pool.message(10)).rows]

    assert len(set(numbers)) == 2000


def test_bad_messages_are_bad_in_one_way() -> None:
    pool = MessagePool(TABLE, 7)

    value, headers = pool.bad_message(Kind.NO_TABLE, 2)
    assert "table" not in headers
    assert len(parsed(value).rows) == 2

    value, headers = pool.bad_message(Kind.UNKNOWN_TABLE, 2)
    assert headers["table"] == "db.t_unknown"
    assert len(parsed(value).rows) == 2

    value, headers = pool.bad_message(Kind.UNDECODABLE, 2)
    assert headers == pool.headers
    with pytest.raises(DecodeError):
        parsed(value)

    value, headers = pool.bad_message(Kind.WRONG_TYPE, 2)
    assert headers == pool.headers
    assert len(UnknownFieldSet(parsed(value).rows[2])) == 1


@pytest.mark.parametrize(
    "type_",
    [
        *TYPES,
        *("UUID", "IPv4", "IPv6", "Date", "Date32", "DateTime64(9)", "Float32", "Bool", "UInt256", "FixedString(3)"),
        *("Map(String, Int8)", "Tuple(a Int8, b Array(Nullable(String)))", "Decimal(38, 38)", "Decimal(5, 0)", "Point"),
    ],
)
def test_samples_of_every_kind_of_type_can_be_sent(type_: str) -> None:
    table = TableHistory(
        id=1, name="db.t", revisions=(Revision(number=1, columns=(Column(name="c", type=type_, field=1),)),)
    )
    encoder = RowEncoder(table, table.revisions[0])
    rng = random.Random(1)

    assert encoder.encode([{"c": sample(parse_type(type_), rng)} for _ in range(50)])


@pytest.mark.parametrize(
    "wrong",
    [{"tables": {}}, {"tables": {"t": -1}}, {"tables": {"t": 0}}, {"bad": {Kind.NO_TABLE: 0.6, Kind.UNDECODABLE: 0.5}}],
)
def test_a_load_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        LoadSpec(**{"tables": {"t": 1.0}, "messages": 1, **wrong})
