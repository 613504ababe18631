"""An aggregator restarts when it was started before the demand, and only then."""

from __future__ import annotations

import asyncio

from blockhouse.contract.aggregator import RestartStatus
from blockhouse_aggregator.coordination.restarts import RestartDemand
from blockhouse_aggregator.runtime.tables.restarts import RestartRequests


class Demands:
    """The demands on a shard, in memory."""

    def __init__(self) -> None:
        self.last = RestartDemand()

    async def latest(self) -> RestartDemand:
        return self.last

    async def add(self, rollout: str) -> RestartDemand:
        self.last = RestartDemand(number=self.last.number + 1, rollout=rollout)
        return self.last


def started(demands: Demands, ends: list[str]) -> RestartRequests:
    restarting = RestartRequests(demands, ends.append)
    asyncio.run(restarting.start())
    return restarting


def test_a_demand_is_seen_by_all_that_run_and_followed_once() -> None:
    demands, ends = Demands(), list[str]()
    one, other = started(demands, ends), started(demands, ends)
    assert asyncio.run(one.demand("r")) == 1
    asyncio.run(other.refresh())
    assert one.status == other.status == RestartStatus(demanded=1, seen=0)
    assert other.restart(1)
    assert len(ends) == 1
    again = started(demands, ends)
    assert again.status == RestartStatus(demanded=1, seen=1)
    assert not again.restart(1), "it was started after the demand"
    assert len(ends) == 1


def test_no_process_restarts_for_a_demand_from_before_its_start() -> None:
    demands, ends = Demands(), list[str]()
    asyncio.run(demands.add("r"))
    assert not started(demands, ends).restart(1)
    assert not ends
