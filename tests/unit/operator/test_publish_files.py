"""Configuration files in a pipeline's life: a key stays while a pod mounts it, a lost source changes nothing."""

from __future__ import annotations

import base64
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR
from blockhouse_operator.desired.clickhouse_files import CONFIG, USER_SLOTS, mounted_keys
from e2e.memory.fleet import NAME, NAMESPACE, Fleet

SECRET = f"{NAME}-clickhouse-files"
SOURCE = {"configMapKeyRef": {"name": "extra", "key": "storage.xml"}}


def xml(number: int) -> str:
    return f"<clickhouse><max_open_files>{number}</max_open_files></clickhouse>"


def users(password: str) -> str:
    return f"<clickhouse><users><bob><password>{password}</password></bob></users></clickhouse>"


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    made = Fleet(2, tmp_path)
    with made.kafka.here():
        async with made.watched():
            yield made


def give(fleet: Fleet, number: int) -> None:
    """The ConfigMap, with this content."""
    metadata = {"name": "extra", "namespace": NAMESPACE}
    data = {"storage.xml": xml(number)}
    fleet.api.put("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def declare(fleet: Fleet, **fields: Any) -> None:
    """Give the managed ClickHouse these files."""
    found = copy.deepcopy(fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])
    found["spec"]["clickhouse"]["managed"] |= fields
    found["metadata"]["generation"] = found["metadata"].get("generation", 1) + 1
    fleet.api.put(BLOCK_AGGREGATOR.plural, found)


def published(fleet: Fleet) -> dict[str, str]:
    found = fleet.api.of("secrets").get((NAMESPACE, SECRET), {})
    return {key: base64.b64decode(value).decode() for key, value in found.get("data", {}).items()}


def config(fleet: Fleet) -> set[str]:
    return {key for key in published(fleet) if key.startswith(CONFIG)}


def mounted(fleet: Fleet) -> set[str]:
    """Keys that pods mount."""
    return {key for pod in fleet.api.of("pods").values() for key in mounted_keys(pod, SECRET) if key not in USER_SLOTS}


def pods(fleet: Fleet) -> set[str]:
    return {pod["metadata"]["uid"] for pod in fleet.api.of("pods").values()}


def condition(fleet: Fleet, kind: str) -> tuple[str, str]:
    found = fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME]["status"]["conditions"]
    return next(((one["status"], one["reason"]) for one in found if one["type"] == kind), ("", ""))


async def test_every_key_that_a_pod_mounts_is_there_until_none_does(fleet: Fleet) -> None:
    give(fleet, 1)
    declare(fleet, configFiles=[{"name": "storage.xml", **SOURCE}])
    await fleet.settle()
    former, before = config(fleet), pods(fleet)
    assert mounted(fleet) == former
    give(fleet, 2)
    await fleet.pipeline()

    assert former < config(fleet), "pods mount the one of before"
    for number in range(fleet.shards):
        for _ in range(20):
            fleet.now += 1
            await fleet.caught_up()
            await fleet.shard(number)
            await fleet.pipeline()
            assert mounted(fleet) <= config(fleet)
    await fleet.settle()
    await fleet.caught_up()
    await fleet.pipeline()

    assert before.isdisjoint(pods(fleet))
    assert mounted(fleet) == config(fleet)
    assert former.isdisjoint(config(fleet))


async def test_a_source_that_is_deleted_takes_nothing_away(fleet: Fleet) -> None:
    give(fleet, 1)
    declare(
        fleet, configFiles=[{"name": "storage.xml", **SOURCE}], userFiles=[{"name": "bob.xml", "text": users("one")}]
    )
    await fleet.settle()
    before, content = pods(fleet), published(fleet)

    fleet.api.remove("configmaps", (NAMESPACE, "extra"))
    fleet.restart()
    fleet.now += 60
    await fleet.settle()
    await fleet.settle()

    assert condition(fleet, "FilesPublished") == ("False", "SecretMissing")
    assert condition(fleet, "Stalled")[0] == "True"
    assert condition(fleet, "Ready")[0] == "True"
    assert pods(fleet) == before
    assert published(fleet) == content


async def test_a_new_pipeline_makes_no_shard_before_its_files_are_there(fleet: Fleet) -> None:
    declare(fleet, configFiles=[{"name": "storage.xml", **SOURCE}])
    await fleet.pipeline()
    await fleet.pipeline()
    assert not fleet.api.of("clickhouseshardingests")
    assert condition(fleet, "Ready") == ("False", "SecretMissing")

    give(fleet, 1)
    await fleet.settle()

    assert mounted(fleet) == config(fleet) != set()
    assert condition(fleet, "FilesPublished") == ("True", "AsSpecified")


async def test_files_of_users_change_and_go_without_a_restart(fleet: Fleet) -> None:
    declare(fleet, userFiles=[{"name": "bob.xml", "text": users("one")}])
    await fleet.settle()
    before = pods(fleet)
    another = {"name": "a.xml", "text": users("x").replace("bob", "eve")}

    declare(fleet, userFiles=[{"name": "bob.xml", "text": users("two")}, another])
    await fleet.settle()

    found = published(fleet)
    assert ["eve" in found[USER_SLOTS[0]], "two" in found[USER_SLOTS[1]]] == [True, True]
    declare(fleet, userFiles=[another])
    await fleet.settle()
    assert not any("bob" in text for text in published(fleet).values())
    assert pods(fleet) == before
