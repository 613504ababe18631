"""Rows in a part whose quorum failed do not count, whatever the replica shows: they were never acknowledged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from blockhouse_aggregator.clickhouse.presence import Origin
from blockhouse_aggregator.clickhouse.provenance import stored_rows
from tests.unit.clickhouse.test_merging_engines import TABLE

PLAIN = replace(TABLE, engine="MergeTree", replicated=False)
ORIGIN = Origin("a", 0)


class Showing:
    """A replica that shows a row of each of the offsets 4 and 5, the latter `kept` times in a part that failed."""

    name = "r1"

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.asked: list[Any] = []

    def query(self, sql: str, values: Any = None, **_: Any) -> list[tuple[Any, ...]]:
        self.asked.append((sql, values))
        return [(4, 1, 0, (0,)), (5, 1, self.kept, (0,))]


def test_the_replica_is_asked_again_while_it_has_rows_of_a_part_that_failed() -> None:
    replica: Any = Showing(kept=1)
    with pytest.raises(ServerFault, match=r"quorum failed \(all_7_7_0\)") as refused:
        stored_rows(replica, PLAIN, ORIGIN, 4, 7, failed=("all_7_7_0",))
    assert refused.value.fault is Fault.REPLICA
    sql, values = replica.asked[-1]
    assert "_part IN %(failed)s" in sql
    assert values["failed"] == ("all_7_7_0",)


def test_rows_of_other_parts_count() -> None:
    replica: Any = Showing(kept=0)
    assert stored_rows(replica, PLAIN, ORIGIN, 4, 7, failed=("all_7_7_0",)).counts == {4: 1, 5: 1}
    assert stored_rows(replica, PLAIN, ORIGIN, 4, 7).counts == {4: 1, 5: 1}
    assert "%(failed)s" not in replica.asked[-1][0], "nothing is looked for where nothing failed"
