"""A replica that takes no rows is shown by its aggregator, also while no message waits for it."""

from __future__ import annotations

import aiohttp

from tests.unit.admin.stand_in import StandIn, served


async def shown(aggregator: StandIn) -> tuple[str, list[str]]:
    """What `/status` gives, and the lines of `/readyz` about replicas."""
    async with served(aggregator) as url, aiohttp.ClientSession() as client:
        async with client.get(url + "/status") as answer:
            page = await answer.json()
        async with client.get(url + "/readyz") as answer:
            assert answer.status == 200, "an unready pod would hold up the rollout that helps"
            return page["unfit"], [line for line in (await answer.text()).splitlines() if "replica" in line]


async def test_a_replica_that_takes_no_rows_is_named() -> None:
    aggregator = StandIn()
    assert await shown(aggregator) == ("", [])
    aggregator.unfit = "read-only: default.t"
    assert await shown(aggregator) == ("read-only: default.t", ["the replica takes no rows: read-only: default.t"])
