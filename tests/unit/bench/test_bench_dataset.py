"""The rows of a race are the same for all: each contestant's form of them holds equal values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import dataset
from bench.dataset import CHUNK, ROWS_PER_MESSAGE, Dataset
from bench.plain_loop import Columns, parser
from blockhouse.config.pipeline import Blocks
from blockhouse_aggregator.wire.varints import varint


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    made = Dataset(tmp_path_factory.mktemp("rows"), CHUNK)
    made.prepare()
    return made


class Message:
    """As the loop sees it."""

    def partition(self) -> int:
        return 1

    def offset(self) -> int:
        return 7


def test_messages_and_json_hold_the_same_rows(data: Dataset) -> None:
    parse: Any = parser()
    for value, text in zip(data.messages(), data.json_messages(), strict=True):
        columns = Columns()
        columns.add(Message(), parse.FromString(value))  # type: ignore[arg-type]
        rows = [json.loads(line) for line in text.splitlines()]
        assert columns.rows == len(rows) == ROWS_PER_MESSAGE
        by_name = dict(zip((*dataset.COLUMNS, *dataset.PROVENANCE), columns.lists, strict=True))
        for name in ("event_id", "price", "ref_code", "tags", "flag", "ts"):
            assert by_name[name] == [row[name] for row in rows]
        assert by_name["page"] == [row["page"].encode() for row in rows]
        assert by_name["_kafka_row"] == list(range(ROWS_PER_MESSAGE))


def test_the_same_number_of_rows_is_the_same_rows_and_a_larger_set_begins_with_them(
    data: Dataset, tmp_path: Path
) -> None:
    larger = Dataset(tmp_path, 2 * CHUNK)
    larger.prepare()
    messages = list(larger.messages())
    assert len(messages) == 2 * CHUNK // ROWS_PER_MESSAGE
    assert messages[: len(messages) // 2] == list(data.messages())


def test_the_limits_blocks_are_those_of_full_partitions_in_turn(data: Dataset) -> None:
    blocks = list(data.native_blocks(Blocks(max_rows=20_000), cluster="a", partitions=2, first_offset=1))
    columns = len(dataset.COLUMNS) + len(dataset.PROVENANCE) + len(dataset.TOPIC)
    # 50,000 rows a partition: two full blocks and a half one each
    head = [varint(columns) + varint(rows) for rows in (20_000, 20_000, 20_000, 20_000, 10_000, 10_000)]
    assert [block[: len(start)] for block, start in zip(blocks, head, strict=True)] == head


def test_a_set_that_is_no_whole_number_of_chunks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="multiple of 100000"):
        Dataset(tmp_path, CHUNK + 1)
