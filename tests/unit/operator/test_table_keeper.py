"""What is reported of a table whose aggregator answers while its server does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.pipeline_http import AdminLogin
from blockhouse_operator.adapters.refusals import Unproven
from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.parts import Table
from blockhouse_operator.api.resource import ClickHouseShardIngest, Resource
from blockhouse_operator.api.status import ClickHouseShardIngestStatus
from blockhouse_operator.decide.seen import Gap, ReplicaSeen, TableSeen
from blockhouse_operator.reconcile.table_gaps import TableGaps
from blockhouse_operator.reconcile.tables import TableKeeper
from tests.unit.operator.shard_world import consuming, shard, spec_of

TABLE, DDL = "default.t", "CREATE TABLE t (id UInt64) ENGINE = MergeTree ORDER BY id"


async def as_declared(*_: object) -> Gap:
    return Gap(True)


SERVICES: Any = SimpleNamespace(
    dry_run=False,
    clock=lambda: 0.0,
    wall=lambda: datetime(2026, 1, 1, tzinfo=UTC),
    now=lambda: "2026-01-01T00:00:00Z",
    endpoints=SimpleNamespace(aggregator=lambda name, namespace, **_: f"http://{name}"),
    http=SimpleNamespace(gap=as_declared),
)


def knowing(replica: ReplicaSeen, table: TableSeen) -> ReplicaSeen:
    assert replica.aggregator is not None
    return replace(replica, aggregator=replace(replica.aggregator, tables=(table,)))


def resource_of(ddl: str | None) -> ClickHouseShardIngest:
    """A shard of two replicas with that table."""
    return Resource(
        kind="ClickHouseShardIngest",
        name="events-0",
        namespace="default",
        uid="shard",
        generation=1,
        spec=spec_of(2).model_copy(update={"tables": (Table(name=TABLE, ddl=ddl),)}),
        status=ClickHouseShardIngestStatus(),
    )


CONTENTS: Any = SimpleNamespace(declaration=lambda table: table.ddl, admin_login=lambda *_: AdminLogin())


@pytest.mark.parametrize("ddl", [DDL, None], ids=["declared", "undeclared"])
@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (TableSeen(TABLE, schema_revision=1), Reason.AS_SPECIFIED),
        (TableSeen(TABLE, schema_revision=1, unavailable=True, why="a column was dropped"), Reason.TABLE_BLOCKED),
        (
            TableSeen(TABLE, schema_revision=1, unavailable=True, checked=False, why="not compared yet"),
            Reason.STATUS_UNKNOWN,
        ),
    ],
    ids=["loaded", "blocked", "not-compared"],
)
async def test_only_what_waits_for_a_person_is_reported_as_blocked(
    ddl: str | None, found: TableSeen, reason: Reason
) -> None:
    resource = resource_of(ddl)
    first, second = (consuming(replica.name) for replica in resource.spec.replicas)
    seen = shard(knowing(first, TableSeen(TABLE, schema_revision=1)), knowing(second, found))
    (status,) = await TableKeeper().keep(SERVICES, resource, {}, seen, CONTENTS)
    assert status.state == reason.value
    assert found.why in status.message


class Http:
    """Aggregators without the table, of which those of `failing` cannot create it."""

    def __init__(self, *failing: str) -> None:
        self.created: list[str] = []
        self._failing = failing

    async def gap(self, base: str, *_: object) -> Gap:
        return Gap(base in self.created)

    async def apply(self, base: str, *_: object) -> None:
        if base in self._failing:
            raise Retryable(f"{base} has no room")
        self.created.append(base)


class Reports:
    """Of an API server that takes Events."""

    async def emit(self, *_: object, **__: object) -> None:
        return


async def created(http: Http) -> str:
    """What is reported of the table after one reconcile by what the watches have reported."""

    def must_be_fresh() -> None:
        raise Unproven("it changes what is there")

    known = {**vars(SERVICES), "http": http, "kubernetes": Reports(), "must_be_fresh": must_be_fresh}
    services: Any = SimpleNamespace(**known)
    resource = resource_of(DDL)
    seen = shard(*(consuming(replica.name) for replica in resource.spec.replicas))
    (status,) = await TableKeeper().keep(services, resource, {}, seen, CONTENTS)
    assert status.state == Reason.SCHEMA_CHANGING.value
    return status.message


async def test_a_table_is_created_at_every_replica_in_one_reconcile_and_by_what_watches_report() -> None:
    """Nothing that is there is changed by it, and a shard that is created would list all its objects for each replica
    otherwise."""
    http = Http()
    await created(http)
    assert http.created == ["http://events-0-dc-a-0", "http://events-0-dc-a-1"]


async def test_a_replica_that_cannot_create_it_keeps_no_other_from_it() -> None:
    http = Http("http://events-0-dc-a-0")
    assert "http://events-0-dc-a-0 has no room" in await created(http)
    assert http.created == ["http://events-0-dc-a-1"]


async def test_a_table_is_compared_again_once_its_aggregator_was_silent() -> None:
    """It may have come back with another volume, on which the table is not."""
    asked: list[str] = []

    async def gap(base: str, *_: object) -> Gap:
        asked.append(base)
        return Gap(True)

    services: Any = SimpleNamespace(**{**vars(SERVICES), "http": SimpleNamespace(gap=gap)})
    spec: Any = SimpleNamespace(uid="u", namespace="n")
    answering = knowing(consuming("r1"), TableSeen(TABLE, schema_revision=1))
    gaps, login = TableGaps(), AdminLogin("")

    for replica in (answering, answering, replace(answering, aggregator=None), answering):
        await gaps.at(services, spec, replica, TABLE, DDL, login)

    assert len(asked) == 2
