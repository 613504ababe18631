"""How many shards are being changed is read from their statuses, so that every leader counts the same."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from blockhouse_operator.api.rollout import ShardRollout
from blockhouse_operator.decide.rollout import BeginStep
from blockhouse_operator.decide.seen import ShardSeen
from blockhouse_operator.decide.shard import ShardPlan
from blockhouse_operator.reconcile.busy import REFUSED_SECONDS, busy_shards, done_with, plan_and_take
from tests.unit.operator.shard_world import consuming, spec_of
from tests.unit.operator.shard_world import shard as seen_shard

RESTARTING = {"rollout": {"replica": "any"}}
HOLDING = {"tables": [{"name": "db.t", "heldSince": "2026-01-01T00:00:00Z"}]}


@dataclass
class Shards:
    """The shards of a pipeline by their statuses, in place of the services; `lists` counts requests for all of them."""

    statuses: dict[str, dict[str, Any]]
    lists: int = 0
    now: float = 0.0
    busy: dict[str, Any] = field(default_factory=dict)
    waiting: dict[str, Any] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def kubernetes(self) -> Shards:
        return self

    async def list(self, *_: object) -> list[dict[str, Any]]:
        self.lists += 1
        return [{"metadata": {"name": name}, "status": status} for name, status in self.statuses.items()]

    def clock(self) -> float:
        return self.now

    def rollout_lock(self, *_: object) -> asyncio.Lock:
        return self.lock


@dataclass(frozen=True)
class Shard:
    """One that asks."""

    name: str = "p-0"
    namespace: str = "ns"
    parallel: int = 1
    paused: bool = False

    @property
    def spec(self) -> Any:
        rollout = ShardRollout(max_parallel_shards=self.parallel, paused=self.paused)
        return spec_of(3).model_copy(update={"pipeline": "p", "rollout": rollout})


def counted(*others: dict[str, Any]) -> int:
    """Busy shards beside shard `p-0`, which holds a table itself."""
    statuses = {"p-0": HOLDING, **{f"p-{number}": status for number, status in enumerate(others, start=1)}}
    return asyncio.run(asked(Shards(statuses), Shard()))


async def asked(shards: Any, shard: Any) -> int:
    return await busy_shards(shards, shard)


@pytest.mark.parametrize(
    ("status", "busy"),
    [
        ({}, 0),
        ({"rollout": None, "tables": [{"name": "db.t", "heldSince": ""}]}, 0),
        ({"rollout": {"replica": "p-1-a-0"}}, 1),
        ({"tables": [{"name": "db.t", "heldSince": ""}, {"name": "db.u", "heldSince": "2026-01-01T00:00:00Z"}]}, 1),
        ({"rollout": {"replica": "p-1-a-0"}, **HOLDING}, 1),
    ],
)
def test_a_shard_is_busy_while_a_replica_restarts_or_a_table_is_paused(status: dict[str, Any], busy: int) -> None:
    assert counted(status) == busy


def test_only_other_shards_are_counted() -> None:
    assert counted(RESTARTING, {}, RESTARTING) == 2


async def test_shards_that_wait_for_one_being_changed_list_all_of_them_once_together() -> None:
    shards = Shards({"p-0": RESTARTING})
    for number in range(1, 200):
        assert await asked(shards, Shard(f"p-{number}")) == 1
    assert shards.lists == 1

    shards.statuses = {}
    shards.now += REFUSED_SECONDS
    assert await asked(shards, Shard("p-1")) == 0


async def test_a_shard_begins_by_a_fresh_count_only() -> None:
    """Else two shards that were counted together would begin where one is allowed."""
    shards = Shards({})
    assert await asked(shards, Shard("p-1")) == 0
    shards.statuses = {"p-1": RESTARTING}
    assert await asked(shards, Shard("p-2")) == 1

    assert await asked(shards, Shard("p-3", parallel=2)) == 1
    shards.statuses["p-3"] = RESTARTING
    assert await asked(shards, Shard("p-4", parallel=2)) == 2


OUTDATED: ShardSeen = seen_shard(
    *(replace(consuming(replica.name), desired_spec_hash="newest") for replica in spec_of(3).replicas)
)


async def planned(shards: Any, shard: Any) -> ShardPlan:
    async def take(plan: ShardPlan) -> bool:
        return bool(shards.lock.locked())

    plan, locked = await plan_and_take(shards, shard, OUTDATED, take)
    assert locked == bool(shards.lists)
    return plan


async def test_a_shard_that_may_not_begin_anyway_lists_nothing() -> None:
    shards = Shards({})

    assert (await planned(shards, Shard(paused=True))).steps == ()
    assert shards.lists == 0


async def test_a_shard_that_could_begin_does_so_unless_too_many_others_are_being_changed() -> None:
    free, taken = Shards({}), Shards({"p-1": RESTARTING})

    assert [type(step) for step in (await planned(free, Shard())).steps] == [BeginStep]
    assert (await planned(taken, Shard())).steps == ()
    assert (free.lists, taken.lists) == (1, 1)


async def test_when_a_shard_is_done_those_that_have_waited_longest_are_next() -> None:
    shards = Shards({"p-0": RESTARTING})
    for name in ("p-3", "p-1", "p-2"):
        assert (await planned(shards, Shard(name))).steps == ()
    shards.statuses = {}

    assert done_with(shards, cast(Any, Shard("p-0"))) == ("p-3",)
    assert done_with(shards, cast(Any, Shard("p-0", parallel=2))) == ("p-3", "p-1")
    assert [type(step) for step in (await planned(shards, Shard("p-3"))).steps] == [BeginStep], "at once, not later"
    assert done_with(shards, cast(Any, Shard("p-0"))) == ("p-1",)
