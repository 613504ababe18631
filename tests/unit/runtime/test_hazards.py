"""What is reported of tables that can be loaded but are not safe to load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.errors import Permanent
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import DefaultKind, ServerColumn, TableHistory
from blockhouse_aggregator.clickhouse.tables import By, Identity, ServerTable
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.tables.catalog import Known
from blockhouse_aggregator.runtime.tables.hazards import HazardWatch, hazards
from blockhouse_aggregator.runtime.tables.loadable import check_loadable
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
    provenance=frozenset({"_kafka_cluster", "_kafka_partition", "_kafka_offset", "_kafka_topic"}),
    materialized_views=(),
    partition_key="",
)
HISTORY = TableHistory(id=1, name="default.t", revisions=(first_revision(SAFE.columns),))


def reasons(table: ServerTable, partitions: int = 2) -> list[str]:
    return [hazard.reason for hazard in hazards(table, CONFIG, partitions)]


def test_a_table_as_our_own_ddl_makes_it_has_none() -> None:
    assert reasons(SAFE) == []


def test_a_window_that_holds_less_than_two_lifetimes_of_an_insert_is_reported_by_the_number_of_writers() -> None:
    table = replace(SAFE, deduplication_window=200)
    assert reasons(table, partitions=1) == []
    assert reasons(table, partitions=2) == ["DeduplicationUnsafe"]


def test_missing_provenance_views_and_engines_without_deduplication_are_reported() -> None:
    assert reasons(replace(SAFE, provenance=frozenset())) == ["ProvenanceMissing"]
    assert reasons(replace(SAFE, provenance=SAFE.provenance - {"_kafka_topic"})) == ["TopicNotNamed"]
    assert reasons(replace(SAFE, materialized_views=("default.v",))) == ["MaterializedViews"]
    assert reasons(replace(SAFE, replicated=False, engine="MergeTree")) == ["NotReplicated"]


def test_a_materialized_column_that_looks_something_up_is_reported_where_content_is_recognised() -> None:
    v = ServerColumn(
        name="v", type="String", default_kind=DefaultKind.MATERIALIZED, default_expression="joinGet('d', 'v', n)"
    )
    table = replace(SAFE, columns=(*SAFE.columns, v))
    (hazard,) = hazards(table, CONFIG, 2)
    assert hazard.reason == "MaterializedLookup"
    assert "v calls joinGet" in hazard.text
    assert reasons(replace(table, identity=Identity(By.TOKEN, 0))) == []


@pytest.mark.parametrize("family", ["Replacing", "Summing", "Aggregating", "VersionedCollapsing", "Graphite"])
def test_an_engine_that_merges_rows_is_reported_unless_rows_of_two_messages_stay_apart(family: str) -> None:
    table = replace(SAFE, engine=f"Replicated{family}MergeTree", sorting_key="day, id")
    assert reasons(table) == ["MergingEngine"]
    apart = "day, _kafka_cluster, _kafka_partition, _kafka_offset, _kafka_row, _kafka_topic"
    assert reasons(replace(table, sorting_key=apart)) == []
    assert reasons(replace(table, sorting_key=apart.removesuffix(", _kafka_topic"))) == ["MergingEngine"]
    assert reasons(replace(table, sorting_key=apart.replace("_kafka_row", "id"))) == ["MergingEngine"]


def test_a_shard_of_servers_that_differ_is_reported_and_views_by_what_its_servers_do() -> None:
    assert reasons(replace(SAFE, identity=Identity(By.NOTHING))) == ["MixedServers"]
    viewed = replace(SAFE, materialized_views=("default.v",))
    (old,) = hazards(viewed, CONFIG, 2)
    (new,) = hazards(replace(viewed, identity=Identity(By.TOKEN, 1)), CONFIG, 2)
    assert "would lose rows" in old.text
    assert "added again unless" in new.text


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


@pytest.mark.parametrize("engine", ["View", "Merge", "Distributed", "Buffer", "Memory", "Null", "MaterializedView"])
def test_what_is_no_merge_tree_is_not_loaded(engine: str) -> None:
    with pytest.raises(Permanent, match=f"engine {engine} cannot be loaded exactly once") as refused:
        check_loadable(CONFIG)(HISTORY, replace(SAFE, replicated=False, engine=engine))
    assert refused.value.reason == "UnsupportedEngine"
