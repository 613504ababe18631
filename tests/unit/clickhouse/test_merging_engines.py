"""Rows of a table that merges them prove nothing: neither that a block was stored nor that it was not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from blockhouse.errors import Blocked
from blockhouse_aggregator.clickhouse.presence import Origin
from blockhouse_aggregator.clickhouse.provenance import stored_rows
from blockhouse_aggregator.clickhouse.tables import ServerTable

TABLE = ServerTable(
    database="default",
    name="sums",
    engine="ReplicatedSummingMergeTree",
    replicated=True,
    zookeeper_path="/t",
    replica_name="r1",
    columns=(),
    deduplication_window=100,
    deduplication_window_seconds=604_800,
    provenance=frozenset({"_kafka_cluster", "_kafka_partition", "_kafka_offset", "_kafka_row"}),
    materialized_views=(),
    partition_key="",
    sorting_key="day, id",
)


class Unasked:
    """A replica whose answer would be of no meaning."""

    name = "r1"

    def query(self, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        return []


def test_a_table_that_merges_rows_is_not_asked() -> None:
    replica: Any = Unasked()
    with pytest.raises(Blocked, match="merges rows of different messages") as undecided:
        stored_rows(replica, TABLE, Origin("a", 0), 4, 7)
    assert undecided.value.reason == "MergingEngine"


def test_a_key_that_does_not_name_the_topic_merges_rows_of_one_that_was_created_again() -> None:
    key = "id, _kafka_cluster, _kafka_partition, _kafka_offset, _kafka_row"
    naming = TABLE.provenance | {"_kafka_topic"}

    assert not replace(TABLE, sorting_key=key).merges_rows
    assert replace(TABLE, sorting_key=key, provenance=naming).merges_rows
    assert not replace(TABLE, sorting_key=f"{key}, _kafka_topic", provenance=naming).merges_rows
