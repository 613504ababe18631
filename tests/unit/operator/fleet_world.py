"""An operator of two shards in memory that are all well, what it has sent, and what others change."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR
from e2e.memory.fleet import NAME, NAMESPACE, Fleet


@asynccontextmanager
async def settled(folder: Path) -> AsyncIterator[Fleet]:
    """Two shards, all well, and nothing left to do."""
    made = Fleet(2, folder)
    with made.kafka.here():
        async with made.watched():
            await made.settle()
            await made.both()
            made.api.requests.clear()
            yield made


def sent(fleet: Fleet, method: str, *words: str) -> list[str]:
    return [r.path for r in fleet.api.requests if r.method == method and all(word in r.path for word in words)]


def outdate(fleet: Fleet, tag: str = "other") -> None:
    """A change of the spec for which pods have to be replaced."""
    found = copy.deepcopy(fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])
    found["spec"]["aggregator"]["image"] = f"blockhouse/aggregator:{tag}"
    fleet.api.put(BLOCK_AGGREGATOR.plural, found)


def images(fleet: Fleet) -> list[str]:
    """Of the aggregators, by shard."""
    found = fleet.api.of("clickhouseshardingests")
    return [found[NAMESPACE, f"{NAME}-{number}"]["spec"]["aggregator"]["image"] for number in range(fleet.shards)]
