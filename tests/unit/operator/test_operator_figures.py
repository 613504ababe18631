"""What the operator's metrics show of its resources."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from blockhouse_operator.api.labels import PIPELINE
from blockhouse_operator.api.status import ClickHouseShardIngestStatus, RebuildStatus, RolloutStatus, TableStatus
from blockhouse_operator.decide.pipeline import ABOUT_SHARDS
from blockhouse_operator.handlers.inventory import CHANGES, Change, Condition, Inventory, OwnCondition, Resource
from blockhouse_operator.health import LoopFigures
from blockhouse_operator.reconcile.report import as_json


def resource(kind: str, name: str, **conditions: str) -> dict[str, Any]:
    reported = [{"type": type_, "status": status} for type_, status in conditions.items()]
    return {
        "kind": kind,
        "metadata": {"namespace": "data", "name": name},
        "status": {"conditions": reported} if reported else None,
    }


FOUND = [
    resource("BlockAggregator", "events", Ready="True", Reconciling="False"),
    resource("ClickHouseShardIngest", "events-0", Ready="False", TableBlocked="True"),
    resource("ClickHouseShardIngest", "events-1", Ready="True", TableBlocked="False"),
    resource("ClickHouseShardIngest", "events-2"),
]


def test_a_resource_is_ready_by_its_condition_and_not_before_it_has_one() -> None:
    inventory = Inventory()
    inventory.replace(FOUND)
    assert inventory.ready == {
        Resource("BlockAggregator", "data", "events"): True,
        Resource("ClickHouseShardIngest", "data", "events-0"): False,
        Resource("ClickHouseShardIngest", "data", "events-1"): True,
        Resource("ClickHouseShardIngest", "data", "events-2"): False,
    }
    assert inventory.conditions[Condition("ClickHouseShardIngest", "TableBlocked", "True")] == 1
    assert inventory.conditions[Condition("ClickHouseShardIngest", "Ready", "True")] == 1


def test_what_is_suspended_or_comes_to_an_end_is_not_waited_for() -> None:
    inventory = Inventory()
    inventory.replace(
        [
            resource("BlockAggregator", "paused", Ready="False", Suspended="True"),
            resource("BlockAggregator", "resumed", Ready="False", Suspended="False"),
            resource("KafkaReassignment", "done", PlanReady="True", Completed="True"),
        ]
    )
    assert inventory.ready == {Resource("BlockAggregator", "data", "resumed"): False}
    assert inventory.conditions[Condition("KafkaReassignment", "Completed", "True")] == 1


def test_a_resource_that_is_gone_has_no_series() -> None:
    inventory = Inventory()
    inventory.replace(FOUND)
    inventory.replace(FOUND[:1])
    assert list(inventory.ready) == [Resource("BlockAggregator", "data", "events")]
    assert {condition.kind for condition in inventory.conditions} == {"BlockAggregator"}


def test_what_is_in_a_namespace_that_is_not_listed_stays_as_it_was() -> None:
    inventory = Inventory()
    inventory.replace(FOUND, "data")
    inventory.replace([], "other")

    assert len(inventory.ready) == 4
    assert inventory.conditions[Condition("ClickHouseShardIngest", "Ready", "True")] == 1


def test_only_conditions_that_are_not_normal_have_a_series_of_their_own() -> None:
    inventory = Inventory()
    verifier = {"type": "VerifierHealthy", "status": "Unknown", "reason": "Disabled"}
    off = resource("BlockAggregator", "events", Ready="False", Stalled="True", TopicsProvisioned="True")
    off["status"]["conditions"].append(verifier)
    inventory.replace(
        [
            off,
            resource("ClickHouseShardIngest", "events-0", Reconciling="True", QuorumHealthy="Unknown"),
            resource("ClickHouseShardIngest", "events-1", Reconciling="False", QuorumHealthy="True"),
        ],
        "data",
    )
    inventory.replace([], "other")

    assert inventory.abnormal == (
        OwnCondition("BlockAggregator", "data", "events", "Stalled", "True"),
        OwnCondition("ClickHouseShardIngest", "data", "events-0", "Reconciling", "True"),
        OwnCondition("ClickHouseShardIngest", "data", "events-0", "QuorumHealthy", "Unknown"),
    )


def test_of_thousands_of_shards_that_are_well_no_condition_has_a_series() -> None:
    well = {kind.value: "True" for kind in ABOUT_SHARDS}
    inventory = Inventory()
    inventory.replace(resource("ClickHouseShardIngest", f"events-{n}", Ready="True", **well) for n in range(2050))

    assert inventory.abnormal == ()


def test_shards_in_the_middle_of_a_change_are_counted_by_pipeline() -> None:
    inventory = Inventory()
    shards = [resource("ClickHouseShardIngest", f"events-{n}", Ready="True") for n in range(4)]
    for shard in shards:
        shard["metadata"]["labels"] = {PIPELINE: "events"}
    shards[0]["status"] |= as_json(ClickHouseShardIngestStatus(rollout=RolloutStatus(replica="r", step="Restart")))
    shards[1]["status"] |= as_json(ClickHouseShardIngestStatus(rebuild=RebuildStatus(replica="r")))
    shards[2]["status"] |= as_json(
        ClickHouseShardIngestStatus(tables=(TableStatus(name="db.t", state="SchemaChanging", held_since="then"),))
    )
    shards[3]["status"] |= as_json(ClickHouseShardIngestStatus())
    inventory.replace(shards)

    assert inventory.changing == {Change("data", "events", change): 1 for change in CHANGES}

    inventory.replace(shards[3:])

    assert inventory.changing == {Change("data", "events", change): 0 for change in CHANGES}


def test_the_metrics_of_a_leader() -> None:
    class Queue:
        reconciles, failures = 7, 2

        def __len__(self) -> int:
            return 3

        def overdue(self) -> float:
            return 1.5

    inventory = Inventory()
    inventory.replace(FOUND)
    loop: Any = SimpleNamespace(
        queue=Queue(),
        sick=lambda: "",
        watch_ages=lambda: {"Pod": 12.0},
        unread=frozenset({"billing"}),
        inventory=inventory,
        reassignments=SimpleNamespace(figures=dict),
    )
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LoopFigures(lambda: loop))

    def value(metric: str, /, **labels: str) -> float | None:
        return registry.get_sample_value(f"blockhouse_operator_{metric}", labels)

    assert value("leader") == 1
    assert value("queue_overdue_seconds") == 1.5
    assert value("watch_age_seconds", kind="Pod") == 12
    assert value("namespace_unread", namespace="billing") == 1
    shard = {"kind": "ClickHouseShardIngest", "namespace": "data"}
    assert value("resource_ready", **shard, name="events-0") == 0
    assert value("resource_ready", **shard, name="events-1") == 1
    assert value("resource_conditions", kind="ClickHouseShardIngest", condition="Ready", status="False") == 1
    assert value("resource_condition", **shard, name="events-1", condition="TableBlocked", status="False") == 1
    assert value("rollouts", namespace="data", pipeline="", change="restart") == 0


def test_a_candidate_shows_that_it_does_not_lead_and_nothing_else() -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LoopFigures(lambda: None))
    assert [metric.name for metric in registry.collect()] == ["blockhouse_operator_leader"]
