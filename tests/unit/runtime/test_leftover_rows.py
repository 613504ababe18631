"""Who accepts that a log was cut hears of rows whose offsets other messages take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import pytest

from blockhouse.errors import Retryable
from blockhouse.schema.model import TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.commands import leftover_rows as module
from blockhouse_aggregator.commands.leftover_rows import leftover_rows
from tests.unit.runtime.configs import CONFIG
from tests.unit.runtime.test_storing import FULL, TABLE

STREAM = StreamId("a", "events", 3)
TABLES = {
    "default.named": replace(FULL, provenance=FULL.provenance | {"_kafka_topic"}),
    "default.empty": FULL,
    "default.unnamed": FULL,
    "default.blind": TABLE,
    "default.merging": replace(FULL, engine="ReplicatedSummingMergeTree", sorting_key="id"),
}


class Server:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def query(self, sql: str) -> list[tuple[int]]:
        assert "_kafka_partition = 3 AND _kafka_offset >= 60" in sql
        return [(0 if "empty" in sql else 90,)]


class Histories:
    def __init__(self, _: Any) -> None: ...

    def all(self) -> tuple[TableHistory, ...]:
        return tuple(TableHistory(id=n, name=name, revisions=()) for n, name in enumerate([*TABLES, "default.gone"], 1))


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Replica", Server)
    monkeypatch.setattr(module, "SchemaStore", Histories)
    monkeypatch.setattr(module, "describe", lambda _, database, name: TABLES.get(f"{database}.{name}"))


def lines() -> list[str]:
    session: Any = None
    return [line.replace("`", "") for line in leftover_rows(CONFIG, session, STREAM, "id", 60)]


def test_each_table_with_such_rows_is_named_with_the_statement_that_deletes_them() -> None:
    first, *statements = lines()
    assert "from 60 on" in first
    where = "_kafka_cluster = 'a' AND _kafka_partition = 3 AND _kafka_offset >= 60"
    assert statements == [
        f"  ALTER TABLE default.named DELETE WHERE {where} AND _kafka_topic = 'events/id';  -- 90 rows",
        f"  ALTER TABLE default.unnamed DELETE WHERE {where};  -- 90 rows",
    ]


def test_nothing_is_printed_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "query", lambda *_: [(0,)])
    assert lines() == []


def test_a_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: Any) -> Any:
        raise Retryable("cannot connect")

    monkeypatch.setattr(Server, "query", silent)
    (line,) = lines()
    assert line.endswith("is not known: cannot connect")
