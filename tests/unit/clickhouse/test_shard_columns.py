"""Which replicas lack a column, by the two nodes of ClickHouse's that state it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from blockhouse_aggregator.clickhouse.shard_columns import Lacking, lacking, words
from blockhouse_aggregator.coordination.znodes import Znode

TABLE = "/clickhouse/tables/01/t"
BEFORE = "columns format version: 1\n2 columns:\n`id` UInt64\n`text` String\n"
AFTER = (
    "columns format version: 1\n4 columns:\n`id` UInt64\n`a \\`b\\` c` UInt32\tDEFAULT\t7\n`text` String\n`b` UInt8\n"
)


class Nodes:
    """Two replicas; `texts` by what follows the table's path."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self.synced = ""

    def sync(self, path: str) -> None:
        self.synced = path

    def children(self, path: str) -> list[str]:
        assert path == f"{TABLE}/replicas"
        return ["r1", "r2"]

    def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        found = [self._texts.get(path.removeprefix(TABLE)) for path in paths]
        return [None if text is None else Znode(text.encode(), 0, 0, 0) for text in found]


def of(texts: Mapping[str, str]) -> tuple[Lacking, ...]:
    nodes = Nodes({"/replicas/r1/is_active": "", "/replicas/r1/columns": AFTER, "/columns": AFTER, **texts})
    found = lacking(cast(Any, nodes), TABLE)
    assert nodes.synced == TABLE, "a follower of the ensemble may lag"
    return found


def test_a_live_replica_that_has_not_applied_an_alter_lacks_its_columns() -> None:
    assert of({"/replicas/r2/is_active": "", "/replicas/r2/columns": BEFORE}) == (Lacking("r2", ("a `b` c", "b")),)


def test_one_that_has_applied_it_lacks_nothing_whatever_else_its_text_differs_in() -> None:
    assert of({"/replicas/r2/is_active": "", "/replicas/r2/columns": AFTER.replace("\t7", "\t'7'")}) == ()


def test_one_without_a_session_is_not_waited_for() -> None:
    assert of({"/replicas/r2/columns": BEFORE}) == ()


def test_what_cannot_be_read_is_no_reason_to_wait() -> None:
    assert of({"/replicas/r2/is_active": ""}) == ()


def test_the_words_name_each_replica_and_its_columns() -> None:
    found = [Lacking("r2", ("a", "b")), Lacking("r3", ("a",))]
    assert words(found) == "replica r2 lacks columns a, b; replica r3 lacks column a"
