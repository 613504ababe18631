"""What the decoder makes of messages that are unusual, older, foreign or broken."""

from __future__ import annotations

from typing import Any

import pytest

from blockhouse.schema.history import extend
from blockhouse.schema.model import DefaultKind, Revision, ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse_aggregator.wire.batch import DecodedBatch
from blockhouse_aggregator.wire.rows import RowsDecoder


def column(name: str, type_: str, default: str = "") -> ServerColumn:
    kind = DefaultKind.DEFAULT if default else DefaultKind.NONE
    return ServerColumn(name=name, type=type_, default_kind=kind, default_expression=default)


BEFORE = extend(TableHistory(id=1, name="db.t"), [column("a", "UInt32"), column("tags", "Array(UInt32)")])
AFTER = extend(
    BEFORE,
    [
        column("a", "UInt32"),
        column("new", "Int32", "42"),
        column("null", "Nullable(Int8)", "5"),
        column("tags", "Array(UInt32)"),
    ],
)


def at(history: TableHistory) -> Revision:
    assert history.current is not None
    return history.current


def decode(history: TableHistory, *payloads: bytes) -> DecodedBatch:
    return RowsDecoder(history, at(history)).decode(payloads)


def batch(history: TableHistory, *rows: dict[str, Any]) -> bytes:
    made: Any = row_batch_class(history, at(history))(rows=rows)
    payload: bytes = made.SerializeToString()
    return payload


def row(body: bytes) -> bytes:
    return b"\x0a" + bytes([len(body)]) + body


def test_rows_of_an_older_producer_take_the_default_and_mix_with_newer_ones() -> None:
    found = decode(AFTER, batch(BEFORE, {"a": 1}), batch(AFTER, {"a": 2, "new": 0, "null": 0}))
    assert {name: values.to_pylist() for name, values in found.columns.items()} == {
        "a": [1, 2],
        "new": [42, 0],
        "null": [5, 0],
        "tags": [[], []],
    }


def test_a_field_that_the_revision_does_not_have_makes_the_message_bad() -> None:
    found = decode(BEFORE, batch(BEFORE, {"a": 1}), batch(AFTER, {"a": 2, "new": 3}))
    assert [(bad.index, bad.reason, bad.detail) for bad in found.bad] == [
        (1, "UnknownField", "field 3 of Row, row 1: a value, not shown, for the field has no name here")
    ]
    assert found.rows_per_message.tolist() == [1, 0]


def test_a_field_of_another_wire_type_is_unknown_too() -> None:
    found = decode(BEFORE, row(b"\x0a\x01x"))
    assert [(bad.reason, bad.detail) for bad in found.bad] == [
        ("UnknownField", "field 1 of Row, row 1: a value of length 1, not shown, for the field has no name here")
    ]


def test_an_unknown_field_cannot_hide_behind_another_encoding_of_the_known_ones() -> None:
    # Unpacked [1] twice saves as many bytes as the unknown field 9 adds: a check of sizes alone would be blind.
    found = decode(BEFORE, row(b"\x10\x01") + row(b"\x10\x01") + row(b"\x48\x01"))
    assert [(bad.reason, bad.detail) for bad in found.bad] == [
        ("UnknownField", "field 9 of Row, row 3: a value, not shown, for the field has no name here")
    ]


LISTS = extend(
    TableHistory(id=1, name="db.t"),
    [column("n", "UInt64"), column("a", "Array(UInt32)"), column("b", "Array(UInt32)")],
)
FLOATS = extend(LISTS, [*LISTS.revisions[-1].columns, column("f", "Array(Float32)")])
UNPACKED_A, UNPACKED_B = b"\x10\x01", b"\x18\x01"


@pytest.mark.parametrize(
    ("history", "payload", "reason"),
    [
        pytest.param(LISTS, row(UNPACKED_A + UNPACKED_B + b"\x48\x01"), "UnknownField", id="in one row"),
        # The second row begins where the decoder's values show that its first number does, and so on.
        pytest.param(
            LISTS,
            row(UNPACKED_A) + row(UNPACKED_A + b"\x08" + b"\x80" * 6 + b"\x01") + row(b"\x0a\x00"),
            "UnknownField",
            id="behind rows that look as if they began elsewhere",
        ),
        # Two floats take as much unpacked as packed, and the rest of a third is one byte.
        pytest.param(FLOATS, row(UNPACKED_A + b"\x22\x09" + bytes(9)), "Undecodable", id="in a list of floats"),
    ],
)
def test_what_lists_of_one_number_save_cannot_hide_anything(history: TableHistory, payload: bytes, reason: str) -> None:
    assert [bad.reason for bad in decode(history, payload).bad] == [reason]


def test_where_lengths_prove_nothing_the_verdicts_are_the_same_portion_after_portion() -> None:
    # given portions in which every message has two lists of one number, and one hides an unknown field
    plain, hiding = batch(LISTS, {"a": [1], "b": [1]}), row(UNPACKED_A + UNPACKED_B + b"\x48\x01")
    portion = [plain] * 150 + [hiding] + [plain] * 49
    decoder = RowsDecoder(LISTS, at(LISTS))
    # when one decoder reads several
    for found in (decoder.decode(portion), decoder.decode(portion), decoder.decode(portion[150:])):
        # then it finds that one every time
        assert [bad.reason for bad in found.bad] == ["UnknownField"]


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(row(b"\x10\x07\x10\x08\x08\x05"), id="unpacked, fields in another order"),
        pytest.param(row(b"\x08\x01\x08\x05\x12\x01\x07\x12\x01\x08"), id="a field twice, a list in two pieces"),
        pytest.param(row(b"\x08\x85\x80\x00\x12\x02\x07\x08"), id="a number longer than it needs to be"),
    ],
)
def test_every_valid_encoding_is_read_as_the_official_runtime_reads_it(payload: bytes) -> None:
    found = decode(BEFORE, payload)
    assert found.bad == ()
    assert {name: values.to_pylist() for name, values in found.columns.items()} == {"a": [5], "tags": [[7, 8]]}


def test_a_truncated_message_does_not_swallow_its_neighbour() -> None:
    good = batch(BEFORE, {"a": 1, "tags": [1, 2]})
    found = decode(BEFORE, good, good[:-1], good, b"\xff\xff", good)
    assert [(bad.index, bad.reason) for bad in found.bad] == [(1, "Undecodable"), (3, "Undecodable")]
    assert found.columns["tags"].to_pylist() == [[1, 2]] * 3


def test_one_bad_row_takes_its_message_with_it_and_nothing_else() -> None:
    history = extend(TableHistory(id=1, name="db.t"), [column("a", "UInt8"), column("b", "FixedString(1)")])
    found = decode(history, batch(history, {"a": 1}), batch(history, {"a": 2}, {"b": b"xx"}), batch(history, {"a": 3}))
    assert [(bad.index, bad.reason, bad.detail) for bad in found.bad] == [
        (1, "WrongLength", 'column b (FixedString(1)), row 2: "xx"')
    ]
    assert found.columns["a"].to_pylist() == [1, 3]
    assert found.rows_per_message.tolist() == [1, 0, 1]


def test_nested_columns_of_one_row_must_be_equally_long() -> None:
    history = extend(TableHistory(id=1, name="db.t"), [column("n.a", "Array(UInt8)"), column("n.b", "Array(String)")])
    found = decode(history, batch(history, {"n_a": [1], "n_b": [b"x"]}), batch(history, {"n_a": [1, 2], "n_b": [b"x"]}))
    assert [(bad.index, bad.reason, bad.detail) for bad in found.bad] == [
        (1, "UnequalNested", 'column n.b (Array(String)), row 1: ["x"]')
    ]


def test_no_messages_are_no_rows() -> None:
    found = decode(BEFORE)
    assert (found.bad, found.rows_per_message.tolist(), found.columns["a"].to_pylist()) == ((), [], [])
