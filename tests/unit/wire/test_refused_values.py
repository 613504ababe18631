"""What people are shown of a value for which a message is refused: column, row, and no more of it than helps."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse_aggregator.wire.json_lines import JsonDecoder
from blockhouse_aggregator.wire.refused_values import HIDDEN, MOST, beginning, refused, shown

ORDERS = TableHistory(
    id=1,
    name="db.orders",
    revisions=(
        first_revision(
            [
                ServerColumn(name="id", type="UInt8"),
                ServerColumn(name="price", type="Decimal(9, 2)"),
                ServerColumn(name="items", type="Map(String, UInt8)"),
            ]
        ),
    ),
)


@pytest.mark.parametrize(
    ("rows", "reason", "detail"),
    [
        ([{"id": 1}, {"id": 2, "colour": "red"}], "UnknownColumn", 'column colour, row 2: "red"'),
        ([{"price": "1.5"}, {"price": "dear"}], "NotADecimal", 'column price (Decimal(9, 2)), row 2: "dear"'),
        ([{"id": 1}, {"id": 1}, {"id": 256}], "OutOfRange", "column id (UInt8), row 3: 256"),
        ([{"id": None}], "NotNullable", "column id (UInt8), row 1: null"),
        (
            [{"items": {"pen": 300}}],
            "OutOfRange",
            'column items (Map(String, UInt8)), row 1: [{"key": "pen", "value": 300}]',
        ),
    ],
)
def test_a_refused_json_message_names_column_row_and_value(rows: list[object], reason: str, detail: str) -> None:
    payload = "\n".join(map(json.dumps, rows)).encode()
    good = b'{"id": 7}'
    found = JsonDecoder(ORDERS, ORDERS.revisions[0]).decode([good, payload, good])
    assert [(bad.index, bad.reason, bad.detail) for bad in found.bad] == [(1, reason, detail)]


@pytest.mark.parametrize(
    ("payload", "detail"),
    [
        (b'{"id": 1}\n\n{"id": oops}', "row 2, character 8: Expecting value"),
        (b'{"id": 1}\n[1]', "row 2 is not an object: list"),
        (b'{"id": 1}\n{"id": 1, "id": 2}', "row 2: a name stands twice in an object"),
    ],
)
def test_what_is_no_json_names_the_row(payload: bytes, detail: str) -> None:
    (bad,) = JsonDecoder(ORDERS, ORDERS.revisions[0]).decode([payload]).bad
    assert (bad.reason, bad.detail) == ("Undecodable", detail)


def test_the_name_of_a_column_that_only_the_message_has_is_cut() -> None:
    (bad,) = JsonDecoder(ORDERS, ORDERS.revisions[0]).decode([b'{"' + b"n" * 100_000 + b'": 1}']).bad
    assert (bad.reason, bad.detail) == ("UnknownColumn", f'column {"n" * MOST} ..., row 1: "1"')


def test_a_long_value_is_cut() -> None:
    text = shown("c", "x" * 10_000)
    assert len(text) < MOST + 10
    assert text.endswith(" ...")


@pytest.mark.parametrize(
    "name", ["password", "user_passwd", "apiKey", "access_token", "clientSecret", "db_credentials"]
)
def test_a_value_of_a_column_that_holds_secrets_is_not_shown(name: str) -> None:
    assert "hunter2" not in refused(name, 0, "hunter2", "UInt8")
    assert f"column {name} (UInt8), row 1: " in refused(name, 0, "hunter2", "UInt8")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"abc", '"abc"'),
        (b"\xff\x00", '"0xff00"'),
        ("two\nlines\u202e", '"two\\nlines\\u202e"'),
        (pa.scalar(b"\xc3\xa4" * 1000), '"' + "ä" * (MOST - 1) + " ..."),
        (b"x" + b"\xc3\xa4" * 1000, '"x' + "ä" * (MOST - 2) + " ..."),
        (pa.scalar(None, pa.string()), "null"),
        (1.5, "1.5"),
    ],
)
def test_a_value_is_one_printable_line(value: object, text: str) -> None:
    assert shown("c", value) == text
    assert shown("c", value).isprintable()


def test_of_a_large_list_only_the_beginning_is_read() -> None:
    large = pa.scalar(np.zeros(1_000_000, np.int64), pa.list_(pa.int64()))
    assert beginning(large) == [0, 0, 0, 0, "1000000 elements"]
    assert beginning(["x" * 1000] * 9) == [*["x" * 256] * 4, "9 elements"]


def test_neither_is_that_of_a_key_that_speaks_of_a_secret() -> None:
    entry = pa.scalar([{"key": "password", "value": "hunter2"}, {"key": "pen", "value": "blue"}])
    assert "hunter2" not in shown("attributes", entry)
    assert beginning(entry) == [{"key": "password", "value": HIDDEN}, {"key": "pen", "value": "blue"}]
    assert beginning({"apiKey": "hunter2", "pen": "blue"}) == {"apiKey": HIDDEN, "pen": "blue"}
