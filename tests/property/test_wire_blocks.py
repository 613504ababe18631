"""A block depends on its messages alone: not on how they were handed over, and not on a bad one among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder, Sealed
from blockhouse_aggregator.wire.rows import RowsDecoder

COLUMNS = {
    "small": "UInt8",
    "maybe": "Nullable(Int32)",
    "text": "LowCardinality(String)",
    "kind": "Enum8('a' = 1, 'b' = 3)",
    "code": "FixedString(2)",
    "amount": "Decimal(9, 2)",
    "tags": "Array(UInt16)",
    "deep": "Array(Array(Int8))",
    "props": "Map(String, Int64)",
    "pair": "Tuple(x UInt8, y Nullable(String))",
    "_kafka_cluster": "LowCardinality(String)",
    "_kafka_partition": "UInt32",
    "_kafka_offset": "UInt64",
    "_kafka_row": "UInt32",
}
REVISION = first_revision([ServerColumn(name=name, type=type_) for name, type_ in COLUMNS.items()])
TABLE = TableHistory(id=1, name="db.t", revisions=(REVISION,))
BATCH: Any = row_batch_class(TABLE, REVISION, wide=True)
DECODER = RowsDecoder(TABLE, REVISION)

# Numbers beyond the columns' ranges and lengths beyond the fixed one: some rows are bad by value.
numbers = st.one_of(st.integers(0, 255), st.integers(-(2**40), 2**40))
rows = st.fixed_dictionaries(
    {},
    optional={
        "small": st.integers(0, 300),
        "maybe": numbers,
        "text": st.binary(max_size=4),
        "kind": st.integers(1, 3),
        "code": st.binary(max_size=3),
        "amount": st.sampled_from(["1.5", "-7", "0.001", "x", "99999999"]),
        "tags": st.lists(st.integers(0, 66_000), max_size=3),
        "deep": st.lists(st.fixed_dictionaries({"value": st.lists(st.integers(-130, 130), max_size=2)}), max_size=2),
        "props": st.lists(st.fixed_dictionaries({"key": st.binary(max_size=2), "value": numbers}), max_size=2),
        "pair": st.fixed_dictionaries({}, optional={"x": st.integers(0, 256), "y": st.binary(max_size=2)}),
    },
)
valid = st.lists(rows, max_size=4).map(lambda batch: BATCH(rows=batch).SerializeToString())


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A message cut short, with bytes changed, or with bytes put in."""
    payload = bytearray(draw(valid))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(payload)))
        match draw(st.sampled_from(["cut", "change", "insert"])):
            case "cut":
                del payload[at:]
            case "change":
                payload[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case _:
                payload[at:at] = draw(st.binary(min_size=1, max_size=4))
    return bytes(payload)


payloads = st.one_of(valid, damaged(), st.binary(max_size=8))


def seal(messages: Sequence[bytes], decode_after: set[int], max_rows: int, first: int = 100) -> Sealed:
    builder = BlockBuilder(TABLE, REVISION, StreamId("a", "events-0", 3))
    for index, payload in enumerate(messages):
        builder.append(first + index, payload, index)
        if index in decode_after:
            builder.decode()
    return builder.seal(max_rows)


@settings(deadline=None, max_examples=150)
@given(st.lists(payloads, max_size=8), st.sets(st.integers(0, 7)), st.integers(1, 6))
def test_how_messages_are_handed_over_never_shows(messages: list[bytes], decode_after: set[int], max_rows: int) -> None:
    assert seal(messages, decode_after, max_rows) == seal(messages, set(), max_rows)


@settings(deadline=None, max_examples=150)
@given(st.lists(payloads, max_size=8), st.integers(1, 6))
def test_a_replay_of_the_range_gives_the_same_block(messages: list[bytes], max_rows: int) -> None:
    # given a block, perhaps cut
    block = seal(messages, set(), max_rows).block
    if block is None:
        return
    # when its range alone is rebuilt, by a replica with another row limit
    again = seal(messages[block.begin - 100 : block.end - 100 + 1], {0}, MAX_ROWS, first=block.begin)
    # then it is the same block, up to the arrival times
    assert again.block is not None
    assert (again.block.begin, again.block.end, again.block.messages) == (block.begin, block.end, block.messages)
    assert (again.block.body, again.block.crc) == (block.body, block.crc)
    assert again.cut_at is None


@settings(deadline=None, max_examples=150)
@given(st.lists(payloads, max_size=8), st.integers(1, 6))
def test_every_message_is_stored_dead_or_left_for_the_next_block(messages: list[bytes], max_rows: int) -> None:
    found = seal(messages, set(), max_rows)
    end = len(messages) if found.cut_at is None else found.cut_at - 100
    stored = found.block.messages if found.block else 0
    assert stored + len(found.dead) == end
    assert all(dead.offset < 100 + end for dead in found.dead)


@settings(deadline=None, max_examples=400)
@given(valid, payloads, valid)
def test_the_verdict_on_a_message_is_that_of_the_official_runtime_and_of_it_alone(
    before: bytes, payload: bytes, after: bytes
) -> None:
    # given any bytes between two messages
    together = DECODER.decode([before, payload, after])
    alone = DECODER.decode([payload])
    # then the neighbours do not matter to it, nor it to them
    assert [(bad.reason, bad.detail) for bad in together.bad if bad.index == 1] == [
        (bad.reason, bad.detail) for bad in alone.bad
    ]
    assert together.rows_per_message[1] == alone.rows_per_message[0]
    without = DECODER.decode([before, after])
    assert together.rows_per_message[[0, 2]].tolist() == without.rows_per_message.tolist()
    # and what is stored of it is what the official runtime reads, nothing unknown left out
    try:
        official = BATCH.FromString(payload)
    except DecodeError:
        assert [bad.reason for bad in alone.bad] == ["Undecodable"]
        return
    size = official.ByteSize()
    official.DiscardUnknownFields()
    if official.ByteSize() != size:
        assert [bad.reason for bad in alone.bad] == ["UnknownField"]
    elif not alone.bad:
        stored = {name: alone.columns[name].to_pylist() for name in ("small", "maybe", "text", "tags", "deep", "props")}
        assert stored == {
            "small": [row.small for row in official.rows],
            "maybe": [row.maybe if row.HasField("maybe") else None for row in official.rows],
            "text": [row.text for row in official.rows],
            "tags": [list(row.tags) for row in official.rows],
            "deep": [[list(item.value) for item in row.deep] for row in official.rows],
            "props": [[{"key": p.key, "value": p.value} for p in row.props] for row in official.rows],
        }
    else:
        assert alone.bad[0].reason in {"OutOfRange", "UnknownEnumValue", "WrongLength", "NotADecimal"}
