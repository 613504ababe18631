"""What is said of tables that can be loaded but are not safe to load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.errors import Permanent
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.runtime.catalog import Known
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.hazards import HazardWatch, hazards
from blockhouse_aggregator.runtime.loadable import check_loadable
from tests.unit.runtime.configs import CONFIG

SAFE = ServerTable(
    database="default",
    name="t",
    engine="ReplicatedMergeTree",
    replicated=True,
    zookeeper_path="/t",
    replica_name="r1",
    columns=(ServerColumn(name="n", type="UInt32"),),
    deduplication_window=10_000,
    deduplication_window_seconds=604_800,
    provenance=frozenset({"_kafka_cluster", "_kafka_partition", "_kafka_offset"}),
    materialized_views=(),
    partition_key="",
)
HISTORY = TableHistory(id=1, name="default.t", revisions=(first_revision(SAFE.columns),))


def reasons(table: ServerTable, partitions: int = 2) -> list[str]:
    return [hazard.reason for hazard in hazards(table, CONFIG, partitions)]


def test_a_table_as_our_own_ddl_makes_it_has_none() -> None:
    assert reasons(SAFE) == []


def test_a_window_that_holds_less_than_two_lifetimes_of_an_insert_is_told_by_the_number_of_writers() -> None:
    table = replace(SAFE, deduplication_window=200)
    assert reasons(table, partitions=1) == []
    assert reasons(table, partitions=2) == ["DeduplicationUnsafe"]


def test_missing_provenance_views_and_engines_without_deduplication_are_told() -> None:
    assert reasons(replace(SAFE, provenance=frozenset())) == ["ProvenanceMissing"]
    assert reasons(replace(SAFE, materialized_views=("default.v",))) == ["MaterializedViews"]
    assert reasons(replace(SAFE, replicated=False, engine="MergeTree")) == ["NotReplicated"]


def test_a_hazard_is_a_metric_until_it_is_gone() -> None:
    figures = Figures()
    watch = HazardWatch(CONFIG, figures)
    labels = {"table": "default.t", "reason": "MaterializedViews"}

    watch.look([Known(HISTORY, replace(SAFE, materialized_views=("default.v",)))])
    assert figures.registry.get_sample_value("blockhouse_table_hazard", labels) == 1

    watch.look([Known(HISTORY, SAFE)])
    assert figures.registry.get_sample_value("blockhouse_table_hazard", labels) == 0


def test_provenance_can_be_required() -> None:
    bare = replace(SAFE, provenance=frozenset())
    check_loadable(CONFIG)(HISTORY, bare)
    strict = CONFIG.model_copy(update={"provenance": "require"})
    with pytest.raises(Permanent, match="_kafka_cluster"):
        check_loadable(strict)(HISTORY, bare)
