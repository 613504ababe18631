"""Length as a proof: what it calls proven holds nothing but its values, whatever tricks a message plays.

Messages are put together record by record, so that bytes saved in one place can hide bytes put in at another.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse_aggregator.wire.lengths import LengthCheck
from blockhouse_aggregator.wire.messages import attempt
from blockhouse_aggregator.wire.rows import RowsDecoder

SCALARS = ("Int64", "UInt64", "Float32", "Bool", "String", "Nullable(Int32)")
TABLES = {
    "one list": (*SCALARS, "Array(Int64)"),
    "three lists": (*SCALARS, "Array(Int64)", "Array(UInt8)", "Array(Bool)"),
    "one list of fixed width": (*SCALARS, "Array(Float64)"),
    "lists of any width": (*SCALARS, "Array(Int64)", "Array(Float64)", "Array(Float32)", "Array(String)"),
    "messages": (*SCALARS, "Tuple(Int64, Array(Int64))", "Map(String, Array(Int64))", "Array(Array(Float32))"),
}


class Case:
    def __init__(self, types: tuple[str, ...]) -> None:
        columns = [ServerColumn(name=f"c{n}", type=type_) for n, type_ in enumerate(types)]
        revision = first_revision(columns)
        table = TableHistory(id=1, name="db.t", revisions=(revision,))
        self.message: Any = row_batch_class(table, revision, wide=True)
        self.decoder = RowsDecoder(table, revision)
        # The judge: no message is proven by its length, every one is encoded back.
        self.slow = RowsDecoder(table, revision)
        self.slow._reader._prove = None
        self.lengths = LengthCheck(self.message)
        self.fields = len(types)


CASES = {name: Case(types) for name, types in TABLES.items()}


def varint(number: int, extra: int = 0) -> bytes:
    """`number` with `extra` bytes more than it needs."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + (bytes([number | 128]) + b"\x80" * (extra - 1) + b"\0" if extra else bytes([number]))


overlong = st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2, 4, 5])
small = st.sampled_from([0, 1, 2, 127, 128, 300, 1 << 20, 1 << 56, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
numbers = st.builds(varint, small, overlong) | st.just(b"\xff" * 9 + b"\x7f") | st.just(b"\x80" * 9 + b"\x02")
fixed = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=4, max_size=4))


def framed(content: bytes, extra: int = 0) -> bytes:
    return varint(len(content), extra) + content


def contents(depth: int) -> st.SearchStrategy[bytes]:
    packed = st.lists(numbers, max_size=3).map(b"".join)
    # Sometimes with a rest that is no number.
    fixed_packed = st.builds(bytes, st.sampled_from([0, 4, 8, 12, 16, 1, 9, 17, 3]))
    strings = st.binary(max_size=3)
    return st.one_of(packed, fixed_packed, strings, *([message(depth - 1)] if depth else []))


def record(depth: int) -> st.SearchStrategy[bytes]:
    """A field with a value of any wire type: known or not, fitting or not, anywhere, any number of times."""
    field = st.integers(1, 12) | st.sampled_from([300, 1 << 20, 1 << 28])

    def of(wire: int, value: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
        return st.builds(lambda n, extra, raw: varint(n << 3 | wire, extra) + raw, field, overlong, value)

    group = st.integers(1, 12).map(lambda n: varint(n << 3 | 3) + varint(n << 3 | 4))
    stray = st.sampled_from([b"\x0c", b"\x00", b"\x0e", b"\x0f", b"\x80"])
    nested = [of(2, st.builds(framed, contents(depth), overlong))] * 4
    return st.one_of(of(0, numbers), of(0, numbers), of(1, fixed), of(5, fixed), *nested, group, stray)


def message(depth: int) -> st.SearchStrategy[bytes]:
    return st.lists(record(depth), max_size=5).map(b"".join)


rows = st.builds(lambda row, extra: b"\x0a" + framed(row, extra), message(2), overlong)
wild = st.lists(st.one_of(*[rows] * 9, record(0)), max_size=4).map(b"".join)


def plain_row(case: Case, data: st.DataObject) -> bytes:
    """Records that fit, lists of one number unpacked more often than not: bytes are saved, and some may be put in."""
    descriptor = case.message.DESCRIPTOR.fields_by_name["rows"].message_type
    return b"\x0a" + framed(fitting(descriptor, data))


def fitting(message: Any, data: st.DataObject) -> bytes:
    out = b""
    for field in message.fields:
        if data.draw(st.booleans()):
            continue
        wire = {1: 1, 2: 5, 12: 2, 9: 2, 11: 2}.get(field.type, 0)
        count = data.draw(st.sampled_from([1, 1, 1, 0, 2, 3])) if field.is_repeated else 1
        values = [value(field, wire, data) for _ in range(count)]
        if field.is_repeated and wire != 2 and data.draw(st.booleans()):
            rest = data.draw(st.sampled_from([b"", b"", b"\0"]))
            out += varint(field.number << 3 | 2) + framed(b"".join(values) + rest)
        else:
            out += b"".join(varint(field.number << 3 | wire) + raw for raw in values)
    return out + data.draw(st.sampled_from([b"", b"", b"\x78\x01", b"\x7a\x00", b"\x7b\x7c", b"\x0c", b"\x08\x01"]))


def value(field: Any, wire: int, data: st.DataObject) -> bytes:
    if wire == 0:
        return data.draw(numbers)
    if wire != 2:
        return bytes(8 if wire == 1 else 4)
    return framed(fitting(field.message_type, data) if field.message_type else data.draw(st.binary(max_size=2)))


def check(case: Case, messages: list[bytes]) -> None:
    # when messages (and good ones, for the doubtful must not be the most) are judged with and without their lengths
    messages = messages + [b""] * len(messages)
    fast, slow = case.decoder.decode(messages), case.slow.decode(messages)
    # then verdicts and values are the same
    assert fast.bad == slow.bad
    assert fast.rows_per_message.tolist() == slow.rows_per_message.tolist()
    for name, values in fast.columns.items():
        # (as text: NaN is not equal to itself)
        assert values.to_pylist().__repr__() == slow.columns[name].to_pylist().__repr__()
    # and what is proven is clean for the official runtime too, and means the same
    for payload in messages:
        if proven(case, payload):
            assert not isinstance(case.decoder._reader._judge(payload), str)


def proven(case: Case, payload: bytes) -> bool:
    array = pa.array([payload], pa.binary())
    batch = attempt(case.decoder._reader._handler, array)
    return batch is not None and not len(case.lengths.doubtful(batch.column("rows"), array))


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None, max_examples=100)
@given(messages=st.lists(wild, min_size=1, max_size=3))
def test_a_message_of_any_records_is_judged_as_if_it_had_been_encoded_back(name: str, messages: list[bytes]) -> None:
    check(CASES[name], messages)


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_what_lists_of_one_number_save_hides_nothing(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    check(case, [b"".join(plain_row(case, data) for _ in range(data.draw(st.integers(1, 3)))) for _ in range(2)])


@pytest.mark.parametrize("name", ["one list", "three lists", "one list of fixed width"])
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_what_the_official_runtime_writes_needs_no_second_look(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    batch = case.message()
    for _ in range(data.draw(st.integers(0, 4))):
        row = batch.rows.add()
        with contextlib.suppress(DecodeError):
            row.MergeFromString(fitting(row.DESCRIPTOR, data))
        row.DiscardUnknownFields()
        # One list of one number is what a row may have.
        for field in list(row.DESCRIPTOR.fields)[len(SCALARS) + 1 :]:
            row.ClearField(field.name)
    assert proven(case, batch.SerializeToString())
