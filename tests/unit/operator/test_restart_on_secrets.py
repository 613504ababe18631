"""A Secret of another content in a pipeline's life: with `onSecretChange: Restart` pods restart once for it."""

from __future__ import annotations

import base64
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from blockhouse.errors import BlockhouseError
from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR, SHARD_INGEST
from e2e.memory.fleet import NAME, NAMESPACE, Fleet
from e2e.memory.wire import Refused, Reply, Sent

PASSWORD = {"name": "loader", "key": "word"}


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Settled, with a Secret that pods read."""
    made = Fleet(2, tmp_path)
    give(made, "one")
    with made.kafka.here():
        async with made.watched():
            declare(made, on_change="Restart")
            await made.settle()
            await made.caught_up()
            await made.pipeline()
            yield made


def give(fleet: Fleet, word: str, name: str = "loader") -> None:
    data = {"word": base64.b64encode(word.encode()).decode()}
    metadata = {"name": name, "namespace": NAMESPACE}
    fleet.api.put("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


def declare(fleet: Fleet, on_change: str, **fields: Any) -> None:
    found = copy.deepcopy(fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])
    found["spec"]["rollout"] = {"onSecretChange": on_change}
    login = {"mechanism": "PLAIN", "username": "loader", "secretRef": PASSWORD}
    found["spec"]["kafka"]["clusters"][0]["sasl"] = login
    found["spec"] |= fields
    found["metadata"]["generation"] = found["metadata"].get("generation", 1) + 1
    fleet.api.put(BLOCK_AGGREGATOR.plural, found)


def pods(fleet: Fleet) -> set[str]:
    return {pod["metadata"]["uid"] for pod in fleet.api.of("pods").values()}


def verifier(fleet: Fleet) -> Any:
    return fleet.api.of("deployments")[NAMESPACE, f"{NAME}-verifier"]["spec"]["template"]


def reported(fleet: Fleet) -> dict[str, str]:
    found = fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME]["status"]["secrets"]
    return {each["name"]: each["hash"] for each in found}


async def settled(fleet: Fleet) -> None:
    fleet.now += 120  # whatever was read of Secrets is old by then
    await fleet.settle()
    await fleet.caught_up()
    await fleet.settle()


async def test_another_content_restarts_every_pod_once(fleet: Fleet) -> None:
    before, watched, hashes = pods(fleet), verifier(fleet), reported(fleet)
    give(fleet, "two")
    await settled(fleet)

    after = pods(fleet)
    assert len(after) == len(before)
    assert before.isdisjoint(after)
    assert verifier(fleet) != watched
    assert {name for name, found in reported(fleet).items() if found != hashes[name]} == {"loader"}
    await settled(fleet)
    fleet.restart()
    async with fleet.watched():
        await settled(fleet)
    assert pods(fleet) == after


async def test_nothing_restarts_where_it_is_not_asked_for_and_for_turning_it_on(fleet: Fleet) -> None:
    before = pods(fleet)
    declare(fleet, on_change="Reload")
    await settled(fleet)
    give(fleet, "two")
    await settled(fleet)
    declare(fleet, on_change="Restart")
    await settled(fleet)
    assert pods(fleet) == before


async def test_a_secret_that_comes_back_restarts_pods_only_with_another_content(fleet: Fleet) -> None:
    before = pods(fleet)
    for word in ("one", "two"):
        fleet.api.remove("secrets", (NAMESPACE, "loader"))
        fleet.now += 120
        await fleet.both()
        await fleet.both()
        assert pods(fleet) == before
        give(fleet, word)
        await settled(fleet)
        assert (pods(fleet) == before) is (word == "one")


async def test_what_changed_while_it_was_paused_restarts_pods_afterwards(fleet: Fleet) -> None:
    before = pods(fleet)
    declare(fleet, on_change="Restart", paused=True)
    give(fleet, "two")
    fleet.now += 120
    await fleet.both()
    await fleet.both()
    assert pods(fleet) == before
    declare(fleet, on_change="Restart", paused=False)
    await settled(fleet)
    assert before.isdisjoint(pods(fleet))


async def test_shards_that_could_not_be_written_are_written_later(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, answer = pods(fleet), fleet.api._answer

    def refusing(sent: Sent) -> Reply:
        if sent.method == "PATCH" and sent.path.endswith(f"/{SHARD_INGEST.plural}/{NAME}-0"):
            raise Refused(422, "not now")
        return answer(sent)

    give(fleet, "two")
    fleet.now += 120
    with monkeypatch.context() as patch:
        patch.setattr(fleet.api, "_answer", refusing)
        with pytest.raises(BlockhouseError, match="not now"):
            await fleet.pipeline()
    await settled(fleet)
    assert before.isdisjoint(pods(fleet))
