"""What a pipeline makes of its shards: changed, corrected, and not all at once. Others change them meanwhile."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.adapters.figures import Figures
from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR, SHARD_INGEST
from blockhouse_operator.adapters.kubernetes import Kubernetes
from blockhouse_operator.adapters.packed import Packed
from blockhouse_operator.api.labels import RESTART, of_pipeline
from blockhouse_operator.api.resource import parse_block_aggregator
from blockhouse_operator.handlers.keys import Key
from blockhouse_operator.handlers.loop import OperatorLoop
from blockhouse_operator.reconcile import shard_ingests
from blockhouse_operator.reconcile.children import Applied
from blockhouse_operator.reconcile.shard_ingests import APPLYING_SECONDS, ShardIngests
from e2e.memory.fleet import NAME, NAMESPACE, Fleet
from tests.unit.operator.fleet_world import images, outdate, sent, settled


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with settled(tmp_path) as made:
        yield made


def suspend(fleet: Fleet) -> None:
    """The first shard, by hand."""
    found = copy.deepcopy(fleet.api.of("clickhouseshardingests")[NAMESPACE, f"{NAME}-0"])
    found["spec"]["suspend"] = True
    fleet.api.put("clickhouseshardingests", found)


async def test_a_shard_that_another_changed_is_corrected_without_all_others_being_read(fleet: Fleet) -> None:
    suspend(fleet)
    await fleet.caught_up()

    await fleet.pipeline()

    assert not fleet.api.of("clickhouseshardingests")[NAMESPACE, f"{NAME}-0"]["spec"].get("suspend")
    assert not sent(fleet, "GET", "clickhouseshardingests")


async def test_a_shard_that_has_changed_since_it_was_reported_is_read_again(fleet: Fleet) -> None:
    suspend(fleet)
    await fleet.caught_up()
    fleet.api.silent = True
    found = copy.deepcopy(fleet.api.of("clickhouseshardingests")[NAMESPACE, f"{NAME}-0"])
    found["metadata"]["annotations"] = {RESTART: "of this shard alone"}
    fleet.api.put("clickhouseshardingests", found)

    await fleet.pipeline()

    now = fleet.api.of("clickhouseshardingests")[NAMESPACE, f"{NAME}-0"]
    assert not now["spec"].get("suspend")
    assert now["metadata"]["annotations"] == {RESTART: "of this shard alone"}


async def test_a_shard_is_not_corrected_to_what_its_pipeline_was_before(fleet: Fleet) -> None:
    """Both were suspended, and only the shard was reported: the pipeline is never taken from a watch."""
    suspend(fleet)
    await fleet.caught_up()
    fleet.api.silent = True
    found = copy.deepcopy(fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])
    found["spec"]["suspend"] = True
    fleet.api.put(BLOCK_AGGREGATOR.plural, found)

    await fleet.pipeline()

    shards = fleet.api.of("clickhouseshardingests")
    assert all(shards[NAMESPACE, f"{NAME}-{number}"]["spec"].get("suspend") for number in (0, 1))


async def test_a_change_of_the_spec_reaches_the_shards_without_all_of_them_being_read(fleet: Fleet) -> None:
    outdate(fleet)
    await fleet.caught_up()

    await fleet.pipeline()

    assert images(fleet) == ["blockhouse/aggregator:other"] * 2
    assert not sent(fleet, "GET", "clickhouseshardingests")


async def test_a_shard_that_has_changed_meanwhile_is_read_before_its_spec_is_changed(fleet: Fleet) -> None:
    outdate(fleet)
    await fleet.caught_up()
    fleet.api.silent = True
    suspend(fleet)

    await fleet.pipeline()

    assert images(fleet) == ["blockhouse/aggregator:other"] * 2
    assert sent(fleet, "GET", "clickhouseshardingests"), "refused, and then decided by all"


async def test_an_idle_pipeline_looks_into_one_shard_alone(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands, all unpacked at the same time, take hundreds of megabytes: each minute."""
    unpacked, looked = Packed.unpacked, Counter[str]()

    def counted(self: Packed) -> Any:
        found = unpacked(self)
        looked[found["kind"]] += 1
        return found

    monkeypatch.setattr(Packed, "unpacked", counted)
    await fleet.pipeline()

    assert looked["ClickHouseShardIngest"] == 1, "the first, by which all are known to have the same files"


@pytest.mark.parametrize("together", [1, 50])
async def test_a_change_of_many_shards_is_interrupted_to_read_the_spec_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """Thousands take a quarter of an hour: what is asked for meanwhile must not wait for so long."""
    apply = Kubernetes.apply

    async def slow(self: Kubernetes, manifest: Any, live: Any, **options: bool) -> str:
        written = await apply(self, manifest, live, **options)
        fleet.now += (written != "unchanged") * 2 * APPLYING_SECONDS
        return written

    monkeypatch.setattr(Kubernetes, "apply", slow)
    monkeypatch.setattr(shard_ingests, "TOGETHER", together)
    outdate(fleet)
    await fleet.caught_up()

    assert await fleet.pipeline() == 0.0
    assert images(fleet).count("blockhouse/aggregator:other") == 1
    conditions = fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME]["status"]["conditions"]
    assert [c["message"] for c in conditions if c["type"] == "Reconciling"] == ["2 shards are behind the spec"]
    outdate(fleet, "newer")
    await fleet.caught_up()
    for _ in range(3):
        await fleet.pipeline()
    assert images(fleet) == ["blockhouse/aggregator:newer"] * 2


@pytest.mark.parametrize("together", [1, 50])
async def test_a_shard_that_was_left_is_behind_only_where_it_differs(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """An operator that has just started compares every shard, which takes longer than one reconcile lasts: pipelines
    in which nothing had changed were `Reconciling` until it was done."""
    apply = Kubernetes.apply

    async def slow(self: Kubernetes, manifest: Any, live: Any, **options: bool) -> str:
        fleet.now += (manifest["kind"] == SHARD_INGEST.name) * 2 * APPLYING_SECONDS
        return await apply(self, manifest, live, **options)

    monkeypatch.setattr(Kubernetes, "apply", slow)
    monkeypatch.setattr(shard_ingests, "TOGETHER", together)
    fleet.serve(fleet.services)  # by reconcilers that have compared nothing yet
    before = copy.deepcopy(fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])

    assert await fleet.pipeline() == 0.0
    assert fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME] == before


@pytest.mark.parametrize("together", [1, 50])
async def test_shards_that_are_refused_keep_no_other_from_its_change(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """Each time they take all the seconds there are."""
    apply = Kubernetes.apply

    async def refused(self: Kubernetes, manifest: Any, live: Any, **options: bool) -> str:
        if manifest["metadata"]["name"] == f"{NAME}-0":
            fleet.now += 2 * APPLYING_SECONDS
            raise Permanent("a webhook refuses it", reason="Forbidden")
        return await apply(self, manifest, live, **options)

    monkeypatch.setattr(Kubernetes, "apply", refused)
    monkeypatch.setattr(shard_ingests, "TOGETHER", together)
    outdate(fleet)
    await fleet.caught_up()
    for _ in range(2):
        with pytest.raises(Retryable, match="a webhook refuses it"):
            await fleet.pipeline()

    assert images(fleet)[1] == "blockhouse/aggregator:other"


async def test_the_lease_is_renewed_while_the_states_of_thousands_of_shards_are_read(fleet: Fleet) -> None:
    """On a busy machine it takes half a minute after a restart: a lease would be lost meanwhile, again and again."""
    desired = parse_block_aggregator(fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])
    shards = await fleet.services.kubernetes.packed(SHARD_INGEST, NAMESPACE, of_pipeline(NAME))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(other())
    states = await ShardIngests().states(desired, shards, Applied())
    others.cancel()

    assert len(states) == fleet.shards == 2
    assert turns >= fleet.shards


async def test_all_shards_of_a_pipeline_are_reconciled_when_it_is_paused(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = OperatorLoop(fleet.services, cast(Any, None), Figures(), concurrency=1, chance=Random(1))
    store = fleet.services.kubernetes.stores.of(SHARD_INGEST, NAMESPACE)  # the loop's, which its watch would fill
    assert store is not None
    shards = fleet.api.of(SHARD_INGEST.plural)
    for shard in shards.values():
        store.reported(shard)
    store.listed(shards, "999999")
    hinted: list[Key] = []
    monkeypatch.setattr(loop.queue, "hint", lambda key, after: hinted.append(key))
    found = copy.deepcopy(fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])
    await loop._reconcilers["pipeline"].reconcile(NAMESPACE, NAME)
    found["spec"]["paused"] = True
    fleet.api.put(BLOCK_AGGREGATOR.plural, found, f"/apis/{BLOCK_AGGREGATOR.api_version}")
    await loop._reconcilers["pipeline"].reconcile(NAMESPACE, NAME)

    assert sorted(hinted) == [Key("shard", NAMESPACE, f"{NAME}-{number}") for number in range(fleet.shards)]
