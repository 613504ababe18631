"""What is reported of a table whose aggregator answers while its server does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse_operator.adapters.pipeline_http import AdminLogin
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
    spec = spec_of(2).model_copy(update={"tables": (Table(name=TABLE, ddl=ddl),)})
    resource: ClickHouseShardIngest = Resource(
        kind="ClickHouseShardIngest",
        name="events-0",
        namespace="default",
        uid="shard",
        generation=1,
        spec=spec,
        status=ClickHouseShardIngestStatus(),
    )
    first, second = (consuming(replica.name) for replica in spec.replicas)
    seen = shard(knowing(first, TableSeen(TABLE, schema_revision=1)), knowing(second, found))
    contents: Any = SimpleNamespace(declaration=lambda table: table.ddl, admin_login=lambda *_: AdminLogin())
    (status,) = await TableKeeper().keep(SERVICES, resource, {}, seen, contents)
    assert status.state == reason.value
    assert found.why in status.message


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
