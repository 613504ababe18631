"""Idle shards cost no request, and a store that is behind never makes the operator take anything down."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR
from blockhouse_operator.api.labels import RESTART, SPEC_HASH
from e2e.memory.fleet import NAME, NAMESPACE, Fleet
from tests.unit.operator.fleet_world import outdate, sent, settled

POD = (NAMESPACE, f"{NAME}-0-dc-a-0-0")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with settled(tmp_path) as made:
        yield made


def unready(fleet: Fleet, replica: str) -> None:
    place = (NAMESPACE, f"{replica}-0")
    pod = copy.deepcopy(fleet.api.of("pods")[place])
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    fleet.api.put("pods", pod)


async def test_an_idle_shard_asks_the_api_server_nothing(fleet: Fleet) -> None:
    for _ in range(5):
        fleet.now += 5
        assert await fleet.shard(0) == fleet.services.resync

    assert {request.path.rpartition("/")[2] for request in fleet.api.requests} <= {
        "blockhouse-pipelines",
        f"{NAME}-internal",
        "events-tables",
        "clickhouse-analyst",
    }, "what all shards share, once in some seconds"


async def test_an_idle_pipeline_reads_no_shard(fleet: Fleet) -> None:
    await fleet.pipeline()

    assert not sent(fleet, "GET", "clickhouseshardingests")
    assert not [request for request in fleet.api.requests if request.writes]


async def test_the_demand_to_restart_a_pipeline_reaches_its_idle_shards(fleet: Fleet) -> None:
    """An annotation changes no generation, and nothing of the shards has changed."""
    found = copy.deepcopy(fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])
    found["metadata"].setdefault("annotations", {})[RESTART] = "monday"
    fleet.api.put(BLOCK_AGGREGATOR.plural, found)
    before = {name: pod["metadata"]["uid"] for (_, name), pod in fleet.api.of("pods").items()}

    await fleet.settle()

    assert all(fleet.api.of("pods")[NAMESPACE, name]["metadata"]["uid"] != uid for name, uid in before.items())


async def test_what_others_change_is_seen_and_undone(fleet: Fleet) -> None:
    place = (NAMESPACE, f"{NAME}-0")
    service = next(found for found in fleet.api.of("services") if found[1].startswith(f"{NAME}-0-"))
    changed = copy.deepcopy(fleet.api.of("services")[service])
    changed["spec"]["ports"] = []
    fleet.api.put("services", changed)
    shard = copy.deepcopy(fleet.api.of("clickhouseshardingests")[place])
    shard["spec"]["suspend"] = True
    fleet.api.put("clickhouseshardingests", shard)
    await fleet.caught_up()

    await fleet.pipeline()
    await fleet.shard(0)

    assert fleet.api.of("services")[service]["spec"]["ports"]
    assert not fleet.api.of("clickhouseshardingests")[place]["spec"].get("suspend")


async def test_a_rollout_comes_to_its_end(fleet: Fleet) -> None:
    outdate(fleet)
    await fleet.settle()

    images = [pod["spec"]["containers"][-1]["image"] for pod in fleet.api.of("pods").values()]
    assert len(sent(fleet, "POST", "eviction")) == len(images) == 8
    assert set(images) == {"blockhouse/aggregator:other"}


async def test_nothing_restarts_while_another_replica_is_down_unseen(fleet: Fleet) -> None:
    """The watches report nothing any more, and no one has noticed yet."""
    outdate(fleet)
    await fleet.pipeline()
    await fleet.caught_up()
    fleet.api.silent = True
    unready(fleet, f"{NAME}-0-dc-b-1")

    for _ in range(4):
        fleet.now += 2
        await fleet.shard(0)

    evicted = sent(fleet, "POST", "eviction")
    assert not [path for path in evicted if f"{NAME}-0-dc-b-1" not in path]


async def test_a_pod_is_not_restarted_twice_although_its_new_one_was_not_reported(fleet: Fleet) -> None:
    outdate(fleet)
    await fleet.pipeline()
    await fleet.caught_up()
    fleet.api.silent = True

    for _ in range(30):
        fleet.now += 1
        await fleet.shard(0)

    evicted = sent(fleet, "POST", "eviction")
    assert len(set(evicted)) == len(evicted) == 4


async def test_a_shard_begins_by_what_the_api_server_has_of_the_others(fleet: Fleet) -> None:
    """Another one has begun, and its watch has not reported it: with maxParallelShards 1 this one waits."""
    pod = copy.deepcopy(fleet.api.of("pods")[POD])
    pod["metadata"]["annotations"][SPEC_HASH] = "of another spec"
    fleet.api.put("pods", pod)
    await fleet.caught_up()
    fleet.api.silent = True
    other = copy.deepcopy(fleet.api.of("clickhouseshardingests")[NAMESPACE, f"{NAME}-1"])
    other["status"]["rollout"] = {"replica": f"{NAME}-1-dc-a-0", "step": "Restart", "since": "2026-01-01T00:00:00Z"}
    fleet.api.put("clickhouseshardingests", other)

    await fleet.shard(0)

    assert not sent(fleet, "POST", "eviction")
    assert "rollout" not in fleet.status(0)


async def test_a_status_that_another_wrote_meanwhile_is_not_overwritten_unread(fleet: Fleet) -> None:
    """A step that was noted there, above all: without the note a second one would begin."""
    fleet.api.silent = True
    noted: dict[str, Any] = {"replica": f"{NAME}-0-dc-b-1", "step": "Restart", "since": "2026-01-01T00:00:00Z"}
    found = copy.deepcopy(fleet.api.of("clickhouseshardingests")[NAMESPACE, f"{NAME}-0"])
    found["status"]["rollout"] = noted
    fleet.api.put("clickhouseshardingests", found)
    fleet.http.silent.add(f"{NAME}-0-dc-b-1")  # so that the status changes

    await fleet.shard(0)

    assert fleet.status(0)["rollout"] == noted


async def test_a_shard_of_which_a_write_had_no_answer_is_read_again(fleet: Fleet) -> None:
    store = fleet.services.kubernetes.stores.of(next(k for k in fleet.kinds if k.plural == "pods"), None)
    assert store is not None
    store.doubt(POD)

    await fleet.shard(0)
    assert len(sent(fleet, "GET", "/pods")) == 1
    await fleet.shard(0)
    assert len(sent(fleet, "GET", "/pods")) == 1, "and believed from then on"


async def test_shards_that_wait_for_another_cost_no_requests_and_one_is_woken_when_it_is_done(fleet: Fleet) -> None:
    outdate(fleet)
    await fleet.both()
    await fleet.shard(0)
    fleet.api.requests.clear()
    waits = []
    for _ in range(6):
        fleet.now += 5
        waits.append(await fleet.shard(1))

    assert "rollout" in fleet.status(0)
    assert "rollout" not in fleet.status(1)
    assert not sent(fleet, "GET", "clickhouseshardingests")
    assert waits[-1] == fleet.services.resync
    while "rollout" in fleet.status(0) or not fleet.woken:
        await fleet.shard(0)
    assert fleet.woken == [f"{NAME}-1"]


async def test_a_pipeline_that_stays_unwell_is_reconciled_later_each_time_until_something_changes(fleet: Fleet) -> None:
    fleet.http.silent.update(f"{NAME}-0-{replica}" for replica in ("dc-a-0", "dc-a-1", "dc-b-0"))
    assert await fleet.pipeline() == fleet.services.resync, "it is well"
    await fleet.shard(0)
    await fleet.caught_up()
    assert [await fleet.pipeline() for _ in range(5)] == [10.0, 20.0, 40.0, 60.0, 60.0]

    fleet.http.silent.add(f"{NAME}-0-dc-b-1")
    await fleet.shard(0)
    await fleet.caught_up()
    assert [await fleet.pipeline() for _ in range(2)] == [10.0, 20.0], "another replica has gone"

    fleet.http.silent.clear()
    await fleet.shard(0)
    await fleet.caught_up()
    assert await fleet.pipeline() == fleet.services.resync
