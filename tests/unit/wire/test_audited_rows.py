"""Sent against stored rows: which rows are compared, what is asked once more, what is named. The server is chDB over a
file that holds the block of the aggregator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.schema.model import PROVENANCE_COLUMNS, TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit.values.reading import reader
from blockhouse_aggregator.audit.values.report import TableValues
from blockhouse_aggregator.audit.values.rows import ReplicaValues, portions
from blockhouse_aggregator.blocks.build import BlockBuilder
from blockhouse_aggregator.wire.formats import Format
from tests.format_messages import history, json_message

STREAM = StreamId("a", "t", 0)
MOMENT = 1_700_000_000_123
PROVENANCE = {
    "_kafka_cluster": "String",
    "_kafka_partition": "UInt32",
    "_kafka_offset": "UInt64",
    "_kafka_row": "UInt32",
}
COLUMNS = {
    "id": "UInt32",
    "text": "String DEFAULT 'none'",
    "at": "DateTime DEFAULT now()",
    "long": "UInt64 DEFAULT length(text)",
    **PROVENANCE,
}
Messages = Sequence[Sequence[dict[str, Any]]]
"""Rows by message; the offset of a message is its place times ten."""


class Server:
    """In place of a replica's connection."""

    def __init__(self, oracle: Any, table: TableHistory, block: Path) -> None:
        self._oracle, self._table, self._block = oracle, table, block
        self.asked: list[str] = []

    def query(self, _: str) -> list[tuple[str, ...]]:
        return [
            (self._table.name, column.name, column.type, str(column.default_kind), column.default_expression)
            for column in self._table.revisions[-1].columns
        ]

    def columns(self, sql: str, params: dict[str, Any]) -> list[list[Any]]:
        self.asked.append(sql)
        text = (sql % {"cluster": f"'{params['cluster']}'", "partition": params["partition"]}).replace(
            "`db`.`t`", f"file('{self._block}', 'Native')"
        )
        found = json.loads(self._oracle.query(text, "JSONCompactColumns"))
        return [[v.encode() if isinstance(v, str) else v for v in column] for column in found]


class Audit:
    """The values of a table, whose stored rows are those of one block."""

    def __init__(self, oracle: Any, folder: Path, columns: dict[str, str] = COLUMNS) -> None:
        self.table = history(columns)
        self._oracle, self._block = oracle, folder / "block"

    def store(self, messages: Messages, moment: int = MOMENT) -> None:
        """All columns are given, so that no server is needed for defaults."""
        revision = self.table.revisions[0]
        builder = BlockBuilder(self.table, revision, STREAM)
        for place, rows in enumerate(messages):
            whole = [{"text": "none", "at": moment // 1000, **row} for row in rows]
            whole = [{"long": len(row["text"]), **row} for row in whole]
            kept = {column.name for column in revision.row}
            builder.append(
                place * 10, json_message([{k: v for k, v in row.items() if k in kept} for row in whole]), 1, Format.JSON
            )
        sealed = builder.seal(MAX_ROWS)
        assert sealed.dead == ()
        assert sealed.block is not None
        self._block.write_bytes(sealed.block.body)

    def judge(self, messages: Messages) -> TableValues:
        values = ReplicaValues(ClickHouse(host="none", port=1))
        values._replica = Server(self._oracle, self.table, self._block)  # type: ignore[assignment]
        values.prepare([self.table.name], {self.table.name: self.table})
        own = reader(Format.JSON, self.table, None)
        read = [(place * 10, MOMENT, own.rows(json_message(rows))) for place, rows in enumerate(messages)]
        for portion in portions(STREAM, self.table.name, read):
            values.judge(portion, own)
        return values.result(self.table.name)


@pytest.fixture
def audit(oracle: Any, tmp_path: Path) -> Audit:
    return Audit(oracle, tmp_path)


def test_rows_as_they_were_sent_are_right_whatever_they_lack(audit: Audit) -> None:
    messages = [
        [{"id": 1, "text": "one"}, {"id": 2}, {"id": 3, "long": 4}],
        [],
        [{"id": 4, "at": 5}],
        [{"id": 5, "text": "100 %"}],
    ]
    audit.store(messages)
    found = audit.judge(messages)
    assert (found.rows, found.values, found.wrong.total()) == (5, 20, 0), found.offenders
    assert not found.columns
    assert not found.rest


def test_a_wrong_value_is_named_by_its_place_and_a_row_that_is_missing_is_none(audit: Audit) -> None:
    sent = [[{"id": 1, "text": "one"}, {"id": 2, "text": "two"}], [{"id": 3, "text": "three"}], [{"id": 4}]]
    audit.store([[{"id": 1, "text": "one"}, {"id": 7, "text": "two"}], [{"id": 3, "text": "Three"}]])
    found = audit.judge(sent)
    assert found.rows == 3
    assert found.wrong == {"id": 1, "text": 1}
    assert [str(offender) for offender in found.offenders] == [
        "column id, a/t/0 offset 0 row 1: 2 sent, 7 stored",
        "column text, a/t/0 offset 10 row 0: b'three' sent, b'Three' stored",
    ]


def test_a_constant_and_an_expression_stand_for_what_was_not_sent(audit: Audit) -> None:
    sent = [[{"id": 1}], [{"id": 2, "text": "xy"}], [{"id": 3, "long": 2}]]
    audit.store([[{"id": 1, "text": "some"}], [{"id": 2, "text": "xy", "long": 9}], [{"id": 3, "long": 2}]])
    found = audit.judge(sent)
    assert found.wrong == {"text": 1, "long": 1}
    assert {(o.column, o.offset, o.sent, o.stored) for o in found.offenders} == {
        ("text", 0, "b'none'", "b'some'"),
        ("long", 10, "2", "9"),
    }


def test_the_time_of_the_message_stands_for_the_clock(audit: Audit) -> None:
    sent = [[{"id": 1}], [{"id": 2}]]
    audit.store([[{"id": 1}], [{"id": 2, "at": MOMENT // 1000 + 1}]])
    found = audit.judge(sent)
    assert found.wrong == {"at": 1}
    assert [(o.offset, o.stored) for o in found.offenders] == [(10, str(MOMENT // 1000 + 1))]


def test_rows_of_one_large_message_are_asked_for_in_portions(audit: Audit) -> None:
    rows = [{"id": number, "text": "x", "at": 1, "long": 1} for number in range(45_000)]
    audit.store([[], rows])
    changed = [*rows[:30_000], {**rows[30_000], "id": 1}, *rows[30_001:]]
    found = audit.judge([[], changed])
    assert (found.rows, found.wrong) == (45_000, {"id": 1})
    assert [(o.offset, o.row) for o in found.offenders] == [(10, 30_000)]


def test_without_numbers_only_messages_of_one_row_are_judged(oracle: Any, tmp_path: Path) -> None:
    audit = Audit(oracle, tmp_path, {"id": "UInt32", **{n: PROVENANCE[n] for n in PROVENANCE_COLUMNS[:3]}})
    audit.store([[{"id": 1}], [{"id": 2}, {"id": 3}], [{"id": 9}]])
    found = audit.judge([[{"id": 1}], [{"id": 2}, {"id": 3}], [{"id": 4}]])
    assert (found.rows, found.wrong) == (2, {"id": 1})
    assert dict(found.rest) == {"rows: the table has no _kafka_row to distinguish them": 2}
