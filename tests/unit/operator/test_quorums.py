"""One ZooKeeper ensemble is asked once for the tables of all shards, and soon again for those of which a part waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import pytest

from blockhouse.errors import Retryable
from blockhouse_operator.reconcile.quorums import FORGOTTEN_SECONDS, TROUBLE_LASTS_SECONDS, EnsembleQuorums

SECONDS = 60.0
SHARDS = 2050


class Ensemble:
    """`waiting` by path; `read` are the paths of each conversation."""

    def __init__(self) -> None:
        self.waiting: dict[str, float] = {}
        self.read: list[set[str]] = []
        self.silent = False
        self.now = 0.0
        self.quorums = EnsembleQuorums(cast(Any, self), lambda: self.now, SECONDS)

    def quorum_waits(self, root: str, paths: Mapping[str, str]) -> dict[str, float]:
        assert root == "/blockhouse/p"
        self.read.append(set(paths.values()))
        if self.silent:
            raise Retryable("no answer")
        return {name: self.waiting[path] for name, path in paths.items() if path in self.waiting}

    async def ask(self, request: Callable[[], Awaitable[None]]) -> None:
        await request()

    async def waits(self, *shards: int) -> list[dict[str, float]]:
        return await asyncio.gather(
            *(self.quorums.waits("/blockhouse/p", {"db.t": f"/t/{shard}"}, self.ask) for shard in shards)
        )


@pytest.fixture
def ensemble() -> Ensemble:
    return Ensemble()


async def test_shards_that_ask_together_share_a_conversation_and_those_of_the_next_minute_find_it(
    ensemble: Ensemble,
) -> None:
    assert await ensemble.waits(*range(SHARDS)) == [{}] * SHARDS
    assert len(ensemble.read) == 1
    for shard in range(SHARDS):
        ensemble.now += SECONDS / 2 / SHARDS
        await ensemble.waits(shard)
    assert len(ensemble.read) == 1

    ensemble.now += SECONDS
    await ensemble.waits(7)
    await ensemble.waits(8)
    assert [len(paths) for paths in ensemble.read] == [SHARDS, SHARDS]


async def test_a_shard_that_asks_while_others_are_read_is_read_next(ensemble: Ensemble) -> None:
    first = asyncio.create_task(ensemble.waits(0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ensemble.waiting["/t/1"] = 9.0

    assert await ensemble.waits(1) == [{"db.t": 9.0}]
    await first


async def test_a_part_that_waits_is_read_again_soon_and_alone(ensemble: Ensemble) -> None:
    ensemble.waiting["/t/1"] = 40.0
    assert await ensemble.waits(0, 1) == [{}, {"db.t": 40.0}]

    ensemble.now += TROUBLE_LASTS_SECONDS - 1
    assert await ensemble.waits(1) == [{"db.t": 44.0}]
    assert len(ensemble.read) == 1
    ensemble.now += 1
    del ensemble.waiting["/t/1"]
    assert await ensemble.waits(1) == [{}]
    assert ensemble.read[1] == {"/t/1"}


async def test_an_ensemble_that_did_not_answer_is_not_believed_to_be_as_before(ensemble: Ensemble) -> None:
    await ensemble.waits(0)
    ensemble.silent = True
    with pytest.raises(Retryable):
        await ensemble.waits(1)
    with pytest.raises(Retryable):
        await ensemble.waits(0)

    ensemble.silent = False
    assert await ensemble.waits(0) == [{}]


async def test_tables_of_shards_that_do_not_ask_are_forgotten(ensemble: Ensemble) -> None:
    await ensemble.waits(0)
    ensemble.now += FORGOTTEN_SECONDS
    await ensemble.waits(1)

    assert ensemble.read[-1] == {"/t/1"}


async def test_one_that_is_cancelled_ends_no_others_conversation(ensemble: Ensemble) -> None:
    first, second = (asyncio.create_task(ensemble.waits(shard)) for shard in (0, 0))
    await asyncio.sleep(0)
    first.cancel()

    assert await second == [{}]
    assert len(ensemble.read) == 1
