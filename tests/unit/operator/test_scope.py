"""What an operator does about the Lease of a namespace that it serves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from blockhouse.errors import Permanent
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.adapters.refusals import Conflict
from blockhouse_operator.reconcile.scope import LOOK_SECONDS, Scope
from blockhouse_operator.reconcile.services import Services


class Leases:
    """One namespace; with `forbidden` the rights are those of an older chart."""

    def __init__(self) -> None:
        self.lease: Any = None
        self.forbidden = False
        self.writes = 0

    async def get(self, *_: object) -> Any:
        await asyncio.sleep(0)
        if self.forbidden:
            raise Permanent("leases is forbidden", reason="Forbidden")
        return self.lease

    async def put(self, manifest: Any, live: Any, *, why: str) -> None:
        await asyncio.sleep(0)
        if live is not self.lease:
            raise Conflict("the lease has been modified")
        self.writes += 1
        self.lease = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(self.writes)}}


class Time:
    now = 1000.0


def scope(
    leases: Leases, time: Time, release: str | None, zones: frozenset[str] | None = None, *, ahead: float = 0.0
) -> Scope:
    """`ahead`: seconds by which its wall clock is off."""
    unused: Any = None
    services = Services(
        kubernetes=cast(Any, leases),
        http=unused,
        clickhouse=unused,
        endpoints=unused,
        ensembles=unused,
        fence=OpenFence(),
        troubles=unused,
        folder=unused,
        clock=lambda: time.now,
        wall=lambda: datetime.fromtimestamp(time.now + ahead, UTC),
        secret=unused,
        zones=zones,
        release=release,
    )
    return Scope(services)


@pytest.fixture
def leases() -> Leases:
    return Leases()


async def test_the_second_release_notices_the_first_and_takes_over_after_its_end(leases: Leases) -> None:
    time = Time()
    ours, theirs = scope(leases, time, "system/ours"), scope(leases, time, "system/theirs")
    assert await ours.other("data", ["a", "b"]) == ""
    reported = await theirs.other("data", ["a", "b"])
    assert "served by the operators of system/ours" in reported
    assert leases.writes == 1
    assert await scope(leases, time, "system/ours").other("data", ["a"]) == "", "another process of the release"

    time.now += 200
    assert await theirs.other("data", ["a", "b"]) == ""
    assert "system/theirs" in await ours.other("data", ["a", "b"])


async def test_shards_reconciled_at_the_same_moment_are_not_refused_each_others_write(leases: Leases) -> None:
    one = scope(leases, Time(), "system/ours")

    assert await asyncio.gather(*(one.other("data", zones) for zones in (["a"], ["a"], ["b"]))) == ["", "", ""]
    assert leases.writes == 2, "one for each set of zones"


@pytest.mark.parametrize("ahead", [-900.0, 900.0])
async def test_releases_whose_clocks_are_apart_do_not_take_each_others_pipelines(leases: Leases, ahead: float) -> None:
    time = Time()
    ours, theirs = scope(leases, time, "system/ours"), scope(leases, time, "system/theirs", ahead=ahead)
    assert await ours.other("data", ["a"]) == ""
    for _ in range(30):
        time.now += LOOK_SECONDS
        assert await ours.other("data", ["a"]) == ""
        assert "system/ours" in await theirs.other("data", ["a"])


async def test_a_release_that_was_restarted_renews_at_once_what_it_serves(leases: Leases) -> None:
    """Others count from the last renewal that they saw."""
    time = Time()
    assert await scope(leases, time, "system/ours").other("data", ["a"]) == ""
    time.now += 1
    assert await scope(leases, time, "system/ours").other("data", ["a"]) == ""
    assert leases.writes == 2


async def test_of_releases_with_zones_of_their_own_one_runs_the_mirrors(leases: Leases) -> None:
    """Each would replace the pods of the other's with every change of version."""
    time = Time()
    first, second = (scope(leases, time, f"system/{zone}", frozenset({zone})) for zone in ("a", "b"))

    assert await first.other_of_mirrors("data") == ""
    assert (
        "every KafkaMirror of namespace data is served by the operators of system/a"
        in await second.other_of_mirrors("data")
    )
    assert await second.other("data", ["a", "b"]) == "", "its zone is another matter"


async def test_releases_with_zones_of_their_own_share_a_namespace(leases: Leases) -> None:
    time = Time()
    for zone in ("a", "b"):
        assert await scope(leases, time, f"system/{zone}", frozenset({zone})).other("data", ["a", "b"]) == ""


async def test_the_api_server_is_not_asked_at_every_reconcile(leases: Leases) -> None:
    time = Time()
    ours = scope(leases, time, "system/ours")
    for _ in range(5):
        await ours.other("data", ["a"])
        time.now += LOOK_SECONDS
    assert leases.writes == 2, "once at first, and once a minute"


async def test_without_the_right_or_without_an_election_it_works_as_before(leases: Leases) -> None:
    assert await scope(leases, Time(), None).other("data", ["a"]) == ""
    leases.forbidden = True
    assert await scope(leases, Time(), "system/ours").other("data", ["a"]) == ""
    assert leases.writes == 0
