"""A pipeline whose operator had token and passwords in one Secret, when one of this version takes it over: on an API
server with server-side apply, with pods and all else that runs."""

from __future__ import annotations

import copy
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from blockhouse.tokens import read_only
from blockhouse_operator.api import names
from e2e.memory.fleet import NAME, NAMESPACE, Fleet

INTERNAL, READ, PASSWORD = names.own_secrets(NAME)
KINDS = ("pods", "statefulsets", "deployments", "configmaps", "clickhouseshardingests")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    made = Fleet(1, tmp_path)
    with made.kafka.here():
        async with made.watched():
            await made.settle()
            await made.both()
            yield made


def content(fleet: Fleet, name: str) -> dict[str, str]:
    data = fleet.api.of("secrets")[NAMESPACE, name]["data"]
    return {key: b64decode(value).decode() for key, value in data.items()}


def running(fleet: Fleet) -> dict[str, Any]:
    return {kind: copy.deepcopy(fleet.api.of(kind)) for kind in KINDS}


async def as_of_before(fleet: Fleet) -> dict[str, str]:
    """Make the one Secret as the former operator applied it; returns its content."""
    secrets, kubernetes = fleet.api.of("secrets"), fleet.services.kubernetes
    live = secrets[NAMESPACE, INTERNAL]
    data = {key: live["data"][key] for key in ("token", "salt")} | secrets[NAMESPACE, PASSWORD]["data"]
    meta = {key: live["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
    await kubernetes.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": data}, live
    )
    for name in (READ, PASSWORD):
        del secrets[NAMESPACE, name]
    fleet.services.remembered.clear()
    return content(fleet, INTERNAL)


async def test_it_is_taken_apart_and_nothing_that_runs_is_written(fleet: Fleet) -> None:
    before = await as_of_before(fleet)
    assert set(before) == {"token", "salt", "password"}
    servers, others = content(fleet, f"{NAME}-clickhouse"), running(fleet)
    fleet.api.requests.clear()

    for _ in range(3):
        fleet.now += 61.0
        await fleet.both()

    written = [request.path.rpartition("/")[2] for request in fleet.api.requests if request.writes]
    secrets = [name for name in written if name not in ("blockhouse-pipelines", "status")]
    assert secrets == [PASSWORD, INTERNAL, READ], "kept before they go from where they were"
    assert content(fleet, INTERNAL) == {"token": before["token"], "salt": before["salt"], "passwords": PASSWORD}
    assert content(fleet, PASSWORD) == {"password": before["password"]}
    assert content(fleet, READ) == {"token": read_only(before["token"])}
    assert content(fleet, f"{NAME}-clickhouse") == servers
    assert running(fleet) == others


async def test_an_operator_that_dies_after_any_write_leaves_what_the_next_one_continues(fleet: Fleet) -> None:
    """No value is another one, and servers keep their files."""
    before = await as_of_before(fleet)
    servers, secrets = content(fleet, f"{NAME}-clickhouse"), fleet.api.of("secrets")
    former = copy.deepcopy(dict(secrets))
    await fleet.both()
    after = {(NAMESPACE, name): copy.deepcopy(secrets[NAMESPACE, name]) for name in (PASSWORD, INTERNAL, READ)}
    for count in range(len(after) + 1):
        secrets.clear()
        secrets.update(copy.deepcopy(former | dict(list(after.items())[:count])))
        fleet.services.remembered.clear()
        await fleet.both()
        assert content(fleet, INTERNAL)["token"] == before["token"], count
        assert content(fleet, PASSWORD) == {"password": before["password"]}, count
        assert content(fleet, f"{NAME}-clickhouse") == servers, count
