"""A difference that cannot be judged is neither exact nor a fault, and the reason is stated."""

from __future__ import annotations

from typing import Any, cast

import pytest
from rich.console import Console

from blockhouse.streams import StreamId
from blockhouse_aggregator.audit.compare import Difference, Example
from blockhouse_aggregator.audit.doubts import NONE, Doubt, doubts
from blockhouse_aggregator.audit.rendering import render
from blockhouse_aggregator.audit.report import AuditReport, table_result
from blockhouse_aggregator.clickhouse.client import Replica

KEYED = frozenset({"id", "_kafka_cluster", "_kafka_partition", "_kafka_offset"})
MERGES, DELETED = Doubt("engine X makes one row of several", of_all=True), Doubt("rows were deleted")
SUMMING = ("default.t", "ReplicatedSummingMergeTree", "id", "CREATE TABLE t (id UInt64) ENGINE = X")
EXPIRING = ("default.t", "MergeTree", "id", "CREATE TABLE t (d Date) ENGINE = MergeTree ORDER BY d TTL d + 1")
PLAIN = ("default.t", "MergeTree", "id", "CREATE TABLE t (d Date) ENGINE = MergeTree ORDER BY d")


class Server:
    def __init__(self, table: tuple[str, str, str, str], *mutations: str) -> None:
        self.table, self.mutations = table, mutations

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        if "system.mutations" in sql:
            return [("default.t", command) for command in self.mutations] + [("other.t", "DELETE WHERE 1")]
        return [self.table, ("other.t", "ReplicatedSummingMergeTree", "id", "")]


@pytest.mark.parametrize(
    ("server", "of_missing", "of_all"),
    [
        (Server(PLAIN, "UPDATE id = 1 WHERE 1"), False, False),
        (Server(PLAIN, "DELETE WHERE id = 1"), True, False),
        (Server(EXPIRING), True, False),
        (Server(SUMMING, "DELETE WHERE id = 1"), True, True),
    ],
)
def test_merges_ttls_and_deletes_are_doubts(server: Server, of_missing: bool, of_all: bool) -> None:
    found = doubts(cast(Replica, server), {"default.t": KEYED})
    assert found.keys() <= {"default.t"}
    doubt = found.get("default.t", NONE)
    assert (bool(doubt.why), doubt.of_all) == (of_missing, of_all)


def report(doubt: Doubt, *, missing: int = 0, duplicates: int = 0) -> AuditReport:
    wrong = Difference(10, duplicates, missing, 0, (Example(7, 1, 0, None),))
    differences = [(StreamId("a", "events", 0), wrong)]
    found = table_result(
        "default.t", "r1", exists=True, messages=1, rows=1, dead_letters=0, differences=differences, doubt=doubt
    )
    return AuditReport("events", (found,))


def test_missing_rows_are_a_fault_unless_they_may_have_been_removed_and_exact_in_no_case() -> None:
    for doubt, missing, duplicates, undecided in (
        (NONE, 1, 0, False),
        (DELETED, 1, 0, True),
        (DELETED, 1, 1, False),
        (MERGES, 1, 1, True),
    ):
        found = report(doubt, missing=missing, duplicates=duplicates)
        assert (found.exact, found.undecided) == (False, undecided)


def test_what_does_not_differ_is_exact_whatever_could_have_been() -> None:
    for doubt in (NONE, DELETED, MERGES):
        assert (report(doubt).exact, report(doubt).undecided) == (True, False)


def test_one_fault_is_not_hidden_by_what_cannot_be_judged() -> None:
    (doubted,), (wrong,) = report(DELETED, missing=1).tables, report(NONE, missing=1).tables
    assert not AuditReport("events", (doubted, wrong)).undecided


def test_a_doubt_is_printed_and_part_of_the_json() -> None:
    console = Console(width=120)
    with console.capture() as printed:
        console.print(render(report(DELETED, missing=1)))
    assert "missing rows cannot be judged: rows were deleted" in printed.get()
    assert "CANNOT BE JUDGED" in printed.get()
    found = report(MERGES, missing=1).to_json()
    assert found["undecided"] is True
    (table,) = found["tables"]
    assert (table["exact"], table["undecided"]) == (False, True)
    assert table["doubt"] == {"why": "engine X makes one row of several", "of_all": True}
