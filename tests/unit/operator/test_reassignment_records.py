"""The records that outlive a KafkaReassignment: each has its own, each can be read again, none is mistaken for ours."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from blockhouse.errors import Permanent
from blockhouse.fleet.frozen import FrozenPlan, PlannedMove
from blockhouse.placement.model import TopicPartition
from blockhouse.throttle.model import Overrides, Ownership, Role
from blockhouse_operator.api.kafka import KafkaCluster
from blockhouse_operator.api.labels import CHILD
from blockhouse_operator.api.reassignment import ReassignmentThrottle
from blockhouse_operator.reconcile.reassignment_records import (
    PLAIN_LIMIT,
    PlanRecord,
    ThrottleRecord,
    is_ours,
    read_plan_record,
)

OURS = Ownership({(3, Role.FOLLOWER): (1_000_000, 2_000_000)}, {("t", Role.LEADER): frozenset({"0:1", "-0:2"})})


class ApiServer:
    """ConfigMaps by name."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}

    async def get(self, _kind: object, _namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get(name)

    async def apply(self, manifest: Mapping[str, Any], _live: object) -> None:
        self.objects[manifest["metadata"]["name"]] = dict(manifest)

    async def delete(self, live: Mapping[str, Any], *, why: str) -> None:
        assert why
        del self.objects[live["metadata"]["name"]]


async def record(api: Any, reassignment: str) -> ThrottleRecord:
    return ThrottleRecord(api, "data", reassignment, "cluster-id", Overrides(), asyncio.get_running_loop())


async def test_what_is_ours_is_read_again_and_its_record_goes_with_the_last_of_it() -> None:
    api = ApiServer()
    one = await record(api, "one")
    assert await asyncio.to_thread(one.ownership) == Ownership()
    await asyncio.to_thread(one.remember, OURS)
    assert await asyncio.to_thread(one.ownership) == OURS
    assert "ownerReferences" not in api.objects["one-throttle"]["metadata"], "it must outlive the resource"
    await asyncio.to_thread(one.remember, Ownership())
    assert api.objects == {}


async def test_one_reassignment_never_takes_the_throttles_of_another_for_its_own() -> None:
    """Two of one Kafka cluster: the first has ended, the second moves. A shared record made the first remove them."""
    api = ApiServer()
    first, second = await record(api, "first"), await record(api, "second")
    await asyncio.to_thread(second.remember, OURS)
    assert await asyncio.to_thread(first.ownership) == Ownership()
    await asyncio.to_thread(first.remember, Ownership())
    assert await asyncio.to_thread(second.ownership) == OURS


async def test_a_config_map_of_that_name_that_is_not_ours_is_left_alone() -> None:
    api = ApiServer()
    api.objects["one-throttle"] = {"metadata": {"name": "one-throttle", "labels": dict(CHILD)}, "data": {}}
    with pytest.raises(Permanent, match="ConfigMap one-throttle belongs to something else"):
        await asyncio.to_thread((await record(api, "one")).remember, OURS)
    assert api.objects["one-throttle"]["data"] == {}


def plan_record(partitions: int) -> PlanRecord:
    moves = tuple(
        PlannedMove(TopicPartition("a-topic-with-a-name", number), (3, 1), (2, 1), 1e9) for number in range(partitions)
    )
    cluster = KafkaCluster(name="a", bootstrap_servers="kafka:9092")
    plan = FrozenPlan("cluster-id", {"a-topic-with-a-name": "topic-id"}, moves, "question")
    return PlanRecord("uid", plan, cluster, ReassignmentThrottle(min_rate="5M"), "Cancel", approved=True)


@pytest.mark.parametrize("partitions", [1, 20_000])
def test_a_plan_of_any_size_is_read_again_as_it_was(partitions: int) -> None:
    written = plan_record(partitions)
    manifest = written.manifest("data", "move")
    assert read_plan_record(manifest) == written
    assert is_ours(manifest, "move")
    assert not is_ours(manifest, "other")
    large = len("".join(manifest["data"].values())) < PLAIN_LIMIT and "binaryData" in manifest
    assert large == (partitions > 1)


def test_a_record_that_was_changed_is_refused_with_what_to_do() -> None:
    manifest = plan_record(2).manifest("data", "move")
    manifest["data"]["plan.json"] = manifest["data"]["plan.json"].replace("[2, 1]", "[4, 1]")
    with pytest.raises(Permanent, match="ConfigMap move-plan is not a frozen plan: its content does not have its hash"):
        read_plan_record(manifest)
    manifest = replace(plan_record(2)).manifest("data", "move")
    del manifest["data"]["resource.json"]
    with pytest.raises(Permanent, match="delete it, and a new plan is computed"):
        read_plan_record(manifest)
