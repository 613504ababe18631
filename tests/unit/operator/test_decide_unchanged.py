"""Which fields of a shard differ, and whether its status still holds after a change."""

from __future__ import annotations

from typing import Any

import pytest

from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.api.status import ClickHouseShardIngestStatus, ReplicaStatus, StreamCount, TableStatus
from blockhouse_operator.decide.pipeline import ShardState
from blockhouse_operator.decide.streams import expected_streams
from blockhouse_operator.decide.unchanged import differences, status_holds
from blockhouse_operator.desired.spec_hash import spec_hash
from tests.unit.operator.resources import pipeline


def spec(*changes: tuple[str, Any]) -> ClickHouseShardIngestSpec:
    return resolve(pipeline(*changes), 0)


def status(of: ClickHouseShardIngestSpec) -> ClickHouseShardIngestStatus:
    ready = {"type": "Ready", "status": "True", "reason": "AllConsuming"}
    return ClickHouseShardIngestStatus.model_validate(
        {
            "revision": spec_hash(of, of.replicas[0]),
            "replicas": tuple(ReplicaStatus(name=replica.name) for replica in of.replicas),
            "tables": tuple(TableStatus(name=table.name) for table in of.tables),
            "streams": StreamCount(expected=len(expected_streams(of))),
            "conditions": [ready],
        }
    )


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (("spec.suspend", True), "spec.suspend"),
        (("spec.networkPolicy.enabled", False), "spec.networkPolicy.enabled"),
        (("spec.rollout.stepTimeout", "1h"), "spec.rollout.stepTimeout"),
        (("spec.zones.0.firstReplica", 7), "spec.zones.dc-a.firstReplica"),
        (("spec.aggregator.logLevel", "debug"), "spec.aggregator.logLevel"),
    ],
)
def test_a_field_that_is_at_its_default_in_one_of_them_differs(change: tuple[str, Any], path: str) -> None:
    assert differences(spec(), spec(change)) == (path,)


def test_the_order_of_named_items_does_not_matter_and_a_further_item_does() -> None:
    mine = spec()
    turned = mine.model_copy(update={"tables": mine.tables[::-1]})
    fewer = mine.model_copy(update={"tables": mine.tables[1:]})

    assert differences(mine, turned) == ()
    assert differences(mine, fewer) == (f"spec.tables.{mine.tables[0].name}",)


@pytest.mark.parametrize(
    "change",
    [
        ("spec.rollout.maxParallelShards", 2),
        ("spec.clickhouse.managed.storage.size", "1Ti"),
        ("spec.networkPolicy.enabled", False),
        ("spec.kafka.topic.config", {"retention.ms": "1"}),
        ("spec.clickhouse.managed.users", []),
    ],
)
def test_a_shard_stays_ready_through_a_change_that_restarts_nothing(change: tuple[str, Any]) -> None:
    after, before = spec(change), status(spec())

    assert status_holds(after, before)
    assert ShardState(0, before, current=False, holds=True).ready


@pytest.mark.parametrize(
    "change",
    [
        ("spec.suspend", True),
        ("spec.aggregator.image", "blockhouse/aggregator:0.2.0"),
        ("spec.zones.1.replicas", 3),
        ("spec.kafka.topic.partitions", 8),
        ("spec.kafka.clusters.1.retired", True),
        ("spec.tables.0.name", "db.another"),
    ],
)
def test_a_shard_is_not_called_ready_for_what_it_has_not_got_yet(change: tuple[str, Any]) -> None:
    after, before = spec(change), status(spec())

    assert not status_holds(after, before)
    assert not ShardState(0, before, current=False, holds=False).ready
