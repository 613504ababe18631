"""What is in a block, where it is cut, and what is dead."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.errors import Permanent
from blockhouse.schema.history import extend
from blockhouse.schema.model import DefaultKind, ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder

STREAM = StreamId("zone-a", "events-0", 3)
GARBAGE = b"\x0a"


def table(*columns: tuple[str, str]) -> TableHistory:
    return extend(TableHistory(id=1, name="db.t"), [ServerColumn(name=name, type=type_) for name, type_ in columns])


NUMBERS = table(("n", "UInt32"))


def message(*numbers: int) -> bytes:
    assert NUMBERS.current is not None
    batch: Any = row_batch_class(NUMBERS, NUMBERS.current)(rows=[{"n": number} for number in numbers])
    payload: bytes = batch.SerializeToString()
    return payload


def builder(*messages: bytes, of: TableHistory = NUMBERS, first: int = 10) -> BlockBuilder:
    assert of.current is not None
    made = BlockBuilder(of, of.current, STREAM)
    for offset, payload in enumerate(messages, first):
        made.append(offset, payload, 1000 - offset)
    return made


def test_a_block_names_its_good_messages_and_the_dead_ones_beside_it() -> None:
    sealed = builder(GARBAGE, message(1, 2), GARBAGE, message(3), GARBAGE).seal(100)
    block = sealed.block
    assert block is not None
    assert (block.begin, block.end, block.messages, block.rows) == (11, 13, 2, 3)
    assert block.min_timestamp_ms == 987
    assert block.crc == zlib.crc32(block.body)
    assert block.header == (("n", "UInt32"),)
    assert [dead.offset for dead in sealed.dead] == [10, 12, 14]
    assert sealed.cut_at is None


def test_nothing_appended_or_nothing_good_is_no_block() -> None:
    assert builder().seal(100).block is None
    sealed = builder(GARBAGE).seal(100)
    assert sealed.block is None
    assert [dead.offset for dead in sealed.dead] == [10]


def test_a_block_is_cut_after_the_last_message_that_fits_and_leaves_the_dead_ones_behind_it() -> None:
    sealed = builder(message(1, 2), GARBAGE, message(3), GARBAGE, message(4, 5), GARBAGE, message(6)).seal(4)
    assert sealed.block is not None
    assert (sealed.block.begin, sealed.block.end, sealed.block.rows) == (10, 12, 3)
    assert sealed.cut_at == 14
    assert [dead.offset for dead in sealed.dead] == [11, 13]


def test_a_message_above_the_row_limit_gets_a_block_of_its_own() -> None:
    first = builder(message(1), message(2, 3, 4), message(5)).seal(2)
    assert first.block is not None
    assert (first.block.end, first.cut_at) == (10, 11)
    second = builder(message(2, 3, 4), message(5), first=11).seal(2)
    assert second.block is not None
    assert (second.block.begin, second.block.end, second.block.rows, second.cut_at) == (11, 11, 3, 12)


def test_a_message_that_no_block_can_hold_is_dead() -> None:
    monster = b"\x0a\x00" * (MAX_ROWS + 1)
    sealed = builder(message(1), monster, message(2)).seal(MAX_ROWS)
    assert sealed.block is not None
    assert (sealed.block.messages, sealed.block.rows) == (2, 2)
    assert [(dead.offset, dead.reason) for dead in sealed.dead] == [(11, "TooManyRows")]


def test_messages_without_rows_count_and_a_block_of_them_has_no_body() -> None:
    sealed = builder(b"", b"").seal(100)
    assert sealed.block is not None
    assert (sealed.block.begin, sealed.block.end, sealed.block.messages) == (10, 11, 2)
    assert (sealed.block.rows, sealed.block.body, sealed.block.crc) == (0, b"", 0)
    mixed = builder(b"", message(1), b"").seal(100).block
    assert mixed is not None
    assert (mixed.begin, mixed.end, mixed.messages, mixed.rows) == (10, 12, 3, 1)


def test_decoding_in_between_lets_go_of_payloads_and_reports_rows_and_dead() -> None:
    made = builder(message(1, 2), GARBAGE)
    assert (made.messages, made.payload_bytes, made.dead) == (2, len(message(1, 2)) + 1, ())
    assert made.decode() == 2
    assert [dead.offset for dead in made.dead] == [11]
    made.append(12, message(3), 0)
    assert made.decode() == 3


def test_every_row_names_where_it_came_from(oracle: Any, tmp_path: Any) -> None:
    # given a table with all provenance columns, in any order and of any wide enough type
    history = table(
        ("_kafka_row", "UInt32"),
        ("n", "UInt32"),
        ("_kafka_offset", "Int64"),
        ("_kafka_cluster", "LowCardinality(String)"),
        ("_kafka_partition", "UInt64"),
    )
    assert history.current is not None
    batch: Any = row_batch_class(history, history.current)
    two, one = (batch(rows=[{"n": 7}] * count).SerializeToString() for count in (2, 1))
    # when a bad message lies among good ones
    block = builder(two, GARBAGE, b"", one, of=history).seal(100).block
    assert block is not None
    # then rows carry cluster, partition, offset and their place in the message
    (tmp_path / "b").write_bytes(block.body)
    columns = "_kafka_cluster, _kafka_partition, _kafka_offset, _kafka_row"
    text = oracle.query(f"SELECT {columns} FROM file('{tmp_path}/b', 'Native') SETTINGS max_threads = 1", "CSV")
    assert text.decode().split() == ['"zone-a",3,10,0', '"zone-a",3,10,1', '"zone-a",3,13,0']


@pytest.mark.parametrize(
    ("column", "type_"),
    [("_kafka_offset", "UInt32"), ("_kafka_partition", "UInt16"), ("_kafka_cluster", "UInt8"), ("_kafka_row", "UInt8")],
)
def test_a_provenance_column_that_could_overflow_is_refused(column: str, type_: str) -> None:
    with pytest.raises(Permanent, match=f"provenance column {column} cannot be {type_}"):
        builder(of=table(("n", "UInt32"), (column, type_)))


def test_a_table_is_refused_when_no_replay_could_repeat_a_default() -> None:
    columns = [
        ServerColumn(name="n", type="UInt32"),
        ServerColumn(name="t", type="DateTime", default_kind=DefaultKind.DEFAULT, default_expression="rand()"),
    ]
    with pytest.raises(Permanent, match=r"table db\.t: DEFAULT rand\w*\(\) of column t"):
        builder(of=extend(TableHistory(id=1, name="db.t"), columns))
