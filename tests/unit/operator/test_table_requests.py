"""What a shard costs its aggregators in requests, by HTTP: an idle one conditional GETs of statuses alone."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from blockhouse.contract import rollouts
from blockhouse.contract.aggregator import STATUS
from blockhouse.contract.decisive import digest
from blockhouse.schema.model import ServerColumn
from blockhouse.serving import Answer, HttpServer, body, respond, respond_unless_known
from blockhouse_operator.adapters.endpoints import Endpoints
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR
from blockhouse_operator.adapters.pipeline_http import PipelineHttp
from blockhouse_operator.api.status import VerifierStatus
from blockhouse_operator.reconcile.table_gaps import LOOK_AGAIN_SECONDS
from e2e.memory.fleet import NAME, NAMESPACE, Fleet
from e2e.simulator.tables import ShardTables, Table
from tests.contract_values import NONE_DONE, page, stream

REPLICAS, TABLES = 4, 2
IDLE = Counter({("GET status", 304): REPLICAS})
COMPARISONS = ("POST difference", 200)
LOADS = NONE_DONE.model_copy(update={"blocks": 1, "rounds": 1})
RESYNC = 61.0
FIRST = f"{NAME}-0-dc-a-0"


class Aggregators(HttpServer):
    """Those of all replicas, by the first part of the path; `earlier` ones state no declaration. `answered` are the
    requests with their codes."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__("127.0.0.1", 0, CollectorRegistry())
        self._streams = fleet.http.streams
        self.earlier = False
        self.drained = True
        self.shards: dict[str, ShardTables] = {}
        self.answered: Counter[tuple[str, int]] = Counter()

    def health(self) -> Answer:
        return Answer(True, "ok")

    readiness = health

    def routes(self) -> list[web.RouteDef]:
        here = ((STATUS, self._status), (rollouts.DIFFERENCE, self._difference), (rollouts.APPLY, self._apply))
        here += ((rollouts.HOLD, self._hold), (rollouts.RELEASE, self._release))
        return [web.route(endpoint.method, "/{replica}" + endpoint.path, handler) for endpoint, handler in here]

    def tables(self, replica: str) -> ShardTables:
        return self.shards.setdefault(replica.removeprefix(f"{NAME}-").split("-")[0], ShardTables())

    def table(self) -> Table:
        return self.tables(FIRST).tables["db.clicks"]

    def taken(self) -> Counter[tuple[str, int]]:
        """What was answered since the last call."""
        taken, self.answered = self.answered, Counter()
        return taken

    def _answer(self, request: web.Request, answer: web.Response) -> web.Response:
        self.answered[f"{request.method} {request.path.rpartition('/')[2]}", answer.status] += 1
        return answer

    async def _status(self, request: web.Request) -> web.Response:
        replica = request.match_info["replica"]
        tables = tuple(self.tables(replica).status(replica))
        if self.earlier:
            tables = tuple(table.model_copy(update={"as_declared": ""}) for table in tables)
        owned = [
            stream(seen.name, lag=0 if self.drained else 7, counters=LOADS) for seen in self._streams.get(replica, ())
        ]
        found = page(*owned, tables=tables)
        return self._answer(request, respond_unless_known(request, found, digest(found)))

    async def _difference(self, request: web.Request) -> web.Response:
        replica, table, asked = *_about(request), await body(request, rollouts.DifferenceRequest)
        return self._answer(request, respond(self.tables(replica).gap(replica, table, asked.ddl)))

    async def _apply(self, request: web.Request) -> web.Response:
        replica, table, asked = *_about(request), await body(request, rollouts.ApplyRequest)
        return self._answer(request, respond(self.tables(replica).apply(replica, table, asked.ddl, asked.rollout)))

    async def _hold(self, request: web.Request) -> web.Response:
        replica, table, asked = *_about(request), await body(request, rollouts.HoldRequest)
        return self._answer(request, respond(self.tables(replica).hold(table, asked.rollout, 1_000_000_000)))

    async def _release(self, request: web.Request) -> web.Response:
        replica, table, asked = *_about(request), await body(request, rollouts.HoldRequest)
        return self._answer(request, respond(self.tables(replica).release(table, asked.rollout)))


def _about(request: web.Request) -> tuple[str, str]:
    return request.match_info["replica"], request.match_info["table"]


class Http(PipelineHttp):
    """Verifiers apart, the real one."""

    async def verdict(self, *_: object) -> VerifierStatus:
        return VerifierStatus(verdict="clean")


class World:
    """One operator and two shards, whose tables were just created as declared."""

    def __init__(self, fleet: Fleet, aggregators: Aggregators) -> None:
        self.fleet, self.aggregators = fleet, aggregators
        self.clients: list[Http] = []

    def restart(self, *zones: str) -> None:
        """A new operator process, for these zones (none: all)."""
        self.clients.append(Http(OpenFence()))
        self.fleet.http = cast(Any, self.clients[-1])
        self.fleet.restart()
        base = f"http://127.0.0.1:{self.aggregators.port}/{{replica}}"
        served = frozenset(zones) or None
        self.fleet.serve(replace(self.fleet.services, endpoints=Endpoints(aggregator_template=base), zones=served))

    async def idle(self, shard: int = 0) -> Counter[tuple[str, int]]:
        """The requests of one reconcile, a resync later."""
        self.aggregators.taken()
        self.fleet.now += RESYNC
        await self.fleet.caught_up()
        await self.fleet.shard(shard)
        return self.aggregators.taken()

    def reported(self) -> list[str]:
        return [table["state"] for table in self.fleet.status(0)["tables"]]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    fleet = Fleet(2, tmp_path)
    aggregators = Aggregators(fleet)
    await aggregators.start()
    made = World(fleet, aggregators)
    made.restart()
    with fleet.kafka.here():
        async with fleet.watched():
            await fleet.settle()
            await fleet.both()
            yield made
    for client in made.clients:
        await client.close()
    await aggregators.stop()


async def test_an_idle_shard_costs_a_conditional_get_a_replica(world: World) -> None:
    for shard in (0, 1):
        assert await world.idle(shard) == IDLE
        assert await world.idle(shard) == IDLE
    assert world.reported() == ["AsSpecified"] * TABLES


async def test_so_it_does_for_an_operator_that_was_just_started(world: World) -> None:
    """It knows no ETag yet, and compares no table."""
    world.restart()
    async with world.fleet.watched():
        assert await world.idle() == Counter({("GET status", 200): REPLICAS})
        assert await world.idle() == IDLE


async def test_so_it_does_for_an_operator_of_zones(world: World) -> None:
    """Operators of other zones are informed of what lasts while a status does not change."""
    world.restart("dc-a", "dc-b")
    async with world.fleet.watched():
        await world.idle()
        world.aggregators.drained = False
        assert await world.idle() == IDLE


async def test_a_shard_that_leaves_is_asked_whether_it_is_drained(world: World) -> None:
    found = copy.deepcopy(world.fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])
    found["spec"] |= {"shards": 1, "shardRemovalPolicy": "Drain"}
    world.aggregators.drained = False
    world.fleet.api.put(BLOCK_AGGREGATOR.plural, found)
    await world.fleet.pipeline()

    assert await world.idle(1) == Counter({("GET status", 200): REPLICAS})
    assert await world.idle(0) == IDLE


async def test_a_column_that_was_dropped_by_hand_is_added_again(world: World) -> None:
    table = world.aggregators.table()
    before = table.columns
    table.columns = before[:2] + before[3:]

    asked = await world.idle()
    assert asked[COMPARISONS] >= REPLICAS
    await world.fleet.settle()

    assert {column.name for column in table.columns} == {column.name for column in before}
    assert table.rollout == ""
    await world.idle()
    assert await world.idle() == IDLE


async def test_a_column_of_another_declaration_is_reported(world: World) -> None:
    table = world.aggregators.table()
    table.columns = (*table.columns, ServerColumn(name="by_hand", type="UInt8"))

    await world.idle()

    assert "SchemaMismatch" in world.reported()


async def test_a_table_that_was_dropped_is_created_again(world: World) -> None:
    world.aggregators.table().replicas.discard(FIRST)

    await world.idle()
    await world.fleet.settle()

    assert FIRST in world.aggregators.table().replicas
    await world.idle()
    assert await world.idle() == IDLE


async def test_another_declaration_is_compared_with_every_replica(world: World) -> None:
    found = copy.deepcopy(world.fleet.api.of("clickhouseshardingests")[NAMESPACE, f"{NAME}-0"])
    inline = next(table for table in found["spec"]["tables"] if "ddl" in table)
    inline["ddl"] = inline["ddl"].replace("(", "( ", 1)
    world.fleet.api.put("clickhouseshardingests", found)

    assert (await world.idle())[COMPARISONS] == REPLICAS
    await world.idle()
    assert await world.idle() == IDLE


async def test_earlier_aggregators_are_asked_once_a_minute(world: World) -> None:
    world.aggregators.earlier = True
    for _ in range(2):
        asked = await world.idle()
        assert asked[COMPARISONS] == REPLICAS * TABLES
    world.fleet.now += LOOK_AGAIN_SECONDS / 2
    await world.fleet.shard(0)
    assert not world.aggregators.taken()[COMPARISONS]
    table = world.aggregators.table()
    table.columns = (*table.columns, ServerColumn(name="by_hand", type="UInt8"))
    await world.idle()
    assert "SchemaMismatch" in world.reported()


async def test_what_is_not_stated_any_more_is_asked_at_once(world: World) -> None:
    """Although it was compared less than a minute ago."""
    await world.idle()
    world.aggregators.table().replicas.discard(FIRST)
    await world.fleet.shard(0)
    assert world.aggregators.taken()[COMPARISONS]
