"""The newest parts alone may show that a block is stored, never that it is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from blockhouse.schema.model import PROVENANCE_COLUMNS
from blockhouse_aggregator.clickhouse import provenance
from blockhouse_aggregator.clickhouse.presence import Origin, StoredRows
from blockhouse_aggregator.clickhouse.provenance import stored_rows
from blockhouse_aggregator.clickhouse.tables import ServerTable

TABLE = ServerTable(
    database="db", name="clicks", engine="MergeTree", replicated=False, zookeeper_path=None, replica_name=None,
    columns=(), deduplication_window=0, deduplication_window_seconds=0, provenance=frozenset(PROVENANCE_COLUMNS),
    materialized_views=(), partition_key="tuple()",
)  # fmt: skip


class Replica:
    """Parts by name, the newest first, with the offsets they hold. `merged` are what becomes of them once listed."""

    name = "r1"

    def __init__(self, parts: dict[str, list[int]], merged: dict[str, list[int]] | None = None) -> None:
        self.parts, self.merged = parts, merged or parts
        self.whole_reads = 0

    def query(self, sql: str, values: Mapping[str, Any], **_: Any) -> list[Any]:
        if "system.parts" in sql:
            listed = [(name, len(offsets)) for name, offsets in self.parts.items()]
            self.parts = self.merged
            return listed
        names = values["parts"] or self.parts
        self.whole_reads += not values["parts"]
        offsets = [offset for name in names for offset in self.parts.get(name, [])]
        return [(o, 1, 0, [0]) for o in offsets if values["begin"] <= o <= values["end"]]


def offsets_found(replica: Any) -> set[int]:
    def whole(found: StoredRows) -> bool:
        return set(found.counts) == {7, 8}

    return set(stored_rows(replica, TABLE, Origin("a", 0, "events/t"), 7, 8, enough=whole).counts)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "NEWEST_ROWS", 3)


def test_what_the_newest_parts_hold_is_enough_when_it_is_the_whole_block() -> None:
    replica = Replica({"new": [7, 8, 9], "old": [1, 2, 3]})
    assert offsets_found(replica) == {7, 8}
    assert replica.whole_reads == 0


def test_what_the_newest_parts_do_not_hold_is_looked_for_in_the_whole_table() -> None:
    replica = Replica({"new": [9, 10, 11], "old": [7, 8]})
    assert offsets_found(replica) == {7, 8}


def test_rows_that_a_merge_moves_between_the_list_of_parts_and_the_read_are_found() -> None:
    replica = Replica({"new": [7, 8, 9], "old": [1, 2, 3]}, merged={"both": [7, 8, 9, 1, 2, 3]})
    assert offsets_found(replica) == {7, 8}
    assert replica.whole_reads == 1
