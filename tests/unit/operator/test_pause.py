"""A paused pipeline is observed, and nothing of it is written."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR
from e2e.memory.fleet import NAME, NAMESPACE, Fleet
from tests.unit.operator.fleet_world import settled

KINDS = ("blockaggregators", "clickhouseshardingests")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with settled(tmp_path) as made:
        yield made


def change(fleet: Fleet, **fields: Any) -> None:
    found = copy.deepcopy(fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])
    found["spec"] |= fields
    fleet.api.put(BLOCK_AGGREGATOR.plural, found)


def written(fleet: Fleet) -> list[str]:
    """What was written, but for statuses, Events and the Lease by which releases notice each other."""
    apart = ("/status", "/events", "/leases")
    return [r.path for r in fleet.api.requests if r.writes and not any(word in r.path for word in apart)]


def conditions(fleet: Fleet, plural: str, name: str) -> dict[str, dict[str, Any]]:
    found = fleet.api.of(plural)[NAMESPACE, name]
    return {one["type"]: one for one in found["status"]["conditions"]}


async def rounds(fleet: Fleet, count: int = 3) -> None:
    for _ in range(count):
        fleet.now += 30
        await fleet.both()


async def test_a_paused_pipeline_is_left_as_it_is_and_reports_so(fleet: Fleet) -> None:
    change(fleet, paused=True)
    service = next(place for place in fleet.api.of("services") if place[1].startswith(f"{NAME}-0-"))
    fleet.api.remove("services", service)

    await rounds(fleet)

    assert written(fleet) == []
    assert service not in fleet.api.of("services")
    for plural, name in zip(KINDS, (NAME, f"{NAME}-0"), strict=True):
        found = conditions(fleet, plural, name)
        assert found["Paused"]["status"] == "True"
        assert found["Ready"]["status"] == "True"
        assert found["TopicsProvisioned"]["status"] == "Unknown"
    assert "Reconciling" not in conditions(fleet, KINDS[0], NAME)


async def test_what_is_changed_while_it_is_paused_is_reported_as_not_carried_out(fleet: Fleet) -> None:
    change(fleet, paused=True, suspend=True, quorum=3)

    await rounds(fleet)

    found = conditions(fleet, KINDS[0], NAME)
    assert written(fleet) == []
    assert (found["Reconciling"]["status"], found["Reconciling"]["reason"]) == ("True", "Paused")
    assert "Suspended" not in found, "its shards load"


async def test_ready_follows_the_aggregators_of_a_paused_pipeline(fleet: Fleet) -> None:
    change(fleet, paused=True)
    fleet.http.silent |= {f"{NAME}-0-dc-a-0", f"{NAME}-0-dc-a-1", f"{NAME}-0-dc-b-0", f"{NAME}-0-dc-b-1"}

    await rounds(fleet)

    assert written(fleet) == []
    assert conditions(fleet, KINDS[1], f"{NAME}-0")["Ready"]["status"] == "False"
    assert conditions(fleet, KINDS[0], NAME)["Ready"]["status"] == "False"


async def test_a_shard_that_has_not_heard_of_it_reads_the_spec_before_it_creates_anything(fleet: Fleet) -> None:
    """The pipeline was paused a moment ago, and nothing has reported it to the shard's reconcile."""
    change(fleet, paused=True)
    for plural in ("services", "configmaps"):
        place = next(place for place in fleet.api.of(plural) if place[1].startswith(f"{NAME}-0"))
        fleet.api.remove(plural, place)
    await fleet.caught_up()

    await fleet.shard(0)

    assert written(fleet) == []
    assert conditions(fleet, KINDS[1], f"{NAME}-0")["Paused"]["status"] == "True"


async def test_a_new_operator_reads_it_before_the_first_shard_of_a_paused_pipeline(fleet: Fleet) -> None:
    change(fleet, paused=True)
    fleet.kafka.topics.clear()
    fleet.restart()

    await fleet.shard(0)

    assert written(fleet) == []
    assert fleet.kafka.topics == {}, "no topic is created"


async def test_it_continues_where_it_was(fleet: Fleet) -> None:
    change(fleet, paused=True, aggregator={"image": "blockhouse/aggregator:other"})
    await rounds(fleet)
    change(fleet, paused=False)

    await fleet.settle()
    await rounds(fleet)

    images = {pod["spec"]["containers"][-1]["image"] for pod in fleet.api.of("pods").values()}
    assert images == {"blockhouse/aggregator:other"}
    assert "Paused" not in conditions(fleet, KINDS[0], NAME)
    assert "Paused" not in conditions(fleet, KINDS[1], f"{NAME}-0")
