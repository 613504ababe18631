"""Keep a shard's tables as the spec declares them: compare each, take at most one step, report how it is.

The steps are carried out by the aggregators beside the replicas: they alone reach ClickHouse and hold the streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog

from blockhouse.config.units import seconds
from blockhouse.contract.rollouts import declaration_digest
from blockhouse.errors import Blocked, BlockhouseError, Permanent, Retryable
from blockhouse_operator.adapters.kinds import SHARD_INGEST, Object
from blockhouse_operator.adapters.pipeline_http import AdminLogin
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.parts import Table
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.api.status import AGGREGATOR_RESTART, TableStatus
from blockhouse_operator.decide.seen import ShardSeen, TableAt
from blockhouse_operator.decide.streams import expected_streams
from blockhouse_operator.decide.tables import (
    ROLLOUT,
    Alter,
    Create,
    PauseTable,
    Release,
    TableLook,
    TablePlan,
    TableStep,
    plan_table,
)
from blockhouse_operator.reconcile.busy import busy_shards, queue_up
from blockhouse_operator.reconcile.observe import admin_base
from blockhouse_operator.reconcile.report import as_json
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.table_gaps import TableGaps, by_status

log = structlog.get_logger(__name__)

EVENT_REASONS: Mapping[type[TableStep], str] = {
    Create: "CreatingTable",
    PauseTable: "HoldingTable",
    Alter: "AlteringTable",
    Release: "ReleasingTable",
}
"""Reasons of the Events."""


@dataclass(frozen=True, slots=True)
class _TableReconcile:
    """What one reconcile of one table is about."""

    services: Services
    shard: ClickHouseShardIngest
    live: Object
    seen: ShardSeen
    table: str
    ddl: str
    login: AdminLogin


class TableKeeper:
    """Tables of all shards of all pipelines."""

    def __init__(self) -> None:
        self._gaps = TableGaps()
        self._last: dict[str, dict[str, tuple[TableAt, ...]]] = {}

    def last(self, shard: ClickHouseShardIngest) -> Mapping[str, tuple[TableAt, ...]]:
        """What the last reconcile of this shard saw of each table at its own replicas: reported to other zones."""
        return self._last.get(shard.uid, {})

    async def keep(
        self, services: Services, shard: ClickHouseShardIngest, live: Object, seen: ShardSeen, contents: Contents
    ) -> tuple[TableStatus, ...]:
        """One reconcile of every declared table of the shard, which is `live` in Kubernetes."""
        found: list[TableStatus] = []
        login = contents.admin_login(shard.spec.pipeline, shard.spec.admin_tls)
        self._last[shard.uid] = {}
        for table in shard.spec.tables:
            ddl = contents.declaration(table)
            if ddl is None:
                found.append(_status(table.name, TablePlan(None, *_undeclared(table, seen))))
                continue
            found.append(await self._reconcile(_TableReconcile(services, shard, live, seen, table.name, ddl, login)))
        return tuple(found)

    async def _reconcile(self, current: _TableReconcile) -> TableStatus:
        services, shard, seen, table = current.services, current.shard, current.seen, current.table
        about = (table, current.ddl, current.login)
        try:
            at = await asyncio.gather(*(self._gaps.at(services, shard, replica, *about) for replica in seen.replicas))
            refused = ""
        except Permanent as error:
            at, refused = [by_status(r, table) for r in seen.replicas], str(error)
        self._last[shard.uid][table] = tuple(at)
        at = [*at, *_elsewhere(seen, table, declaration_digest(current.ddl))]
        look = self._look(current, tuple(at), refused)
        plan = plan_table(look)
        if isinstance(plan.step, PauseTable):
            # Noting a pause and counting those of other shards must be one: else two begin where one is allowed.
            async with services.rollout_lock(shard.namespace, shard.spec.pipeline):
                plan = plan_table(replace(look, busy_shards=await busy_shards(services, shard)))
                queue_up(services, shard, waits=not isinstance(plan.step, PauseTable))
                if isinstance(plan.step, PauseTable):
                    await self._note(current)
                    return _status(table, await self._take(current, plan, plan.step), services.now())
        if plan.step is not None:
            plan = await self._take(current, plan, plan.step)
        return _status(table, plan, _since(at))

    def _look(self, current: _TableReconcile, at: tuple[TableAt, ...], refused: str) -> TableLook:
        shard, seen, table = current.shard, current.seen, current.table
        spec, owned, begun = shard.spec, seen.streams(), shard.status.rollout
        before = next((status for status in shard.status.tables if status.name == table), None)
        return TableLook(
            name=table,
            at=at,
            now_ms=int(current.services.wall().timestamp() * 1000),
            unowned=tuple(stream for stream in expected_streams(spec) if stream not in owned),
            unheard=seen.silent_zones,
            refused=refused,
            paused=spec.rollout.paused,
            outside_window=seen.outside_window,
            abandoned=before is not None
            and before.state == Reason.STEP_TIMED_OUT.value
            and shard.status.observed_generation == shard.generation,
            timeout_seconds=seconds(spec.rollout.step_timeout),
            max_parallel_shards=spec.rollout.max_parallel_shards,
            aborted=spec.rollout.abort,
            restarting=begun.replica if begun is not None else "",
            rolling=begun is not None and begun.step == AGGREGATOR_RESTART,
            reload=spec.rollout.strategy == "Reload",
        )

    async def _note(self, current: _TableReconcile) -> None:
        """Note the pause before it is asked for, so that whatever counts holds sees it."""
        services = current.services
        services.must_be_fresh()
        if services.dry_run:
            return
        held = TableStatus(name=current.table, state=Reason.SCHEMA_CHANGING.value, held_since=services.now())
        before = current.shard.status
        others = tuple(table for table in before.tables if table.name != current.table)
        known = next((table for table in before.tables if table.name == current.table), held)
        noted = known.model_copy(update={"held_since": held.held_since})
        status = before.model_copy(update={"tables": (*others, noted)})
        await services.kubernetes.apply_status(SHARD_INGEST, current.live, as_json(status))

    async def _take(self, current: _TableReconcile, plan: TablePlan, step: TableStep) -> TablePlan:
        services, shard, table, ddl, login = current.services, current.shard, current.table, current.ddl, current.login
        if not isinstance(step, Create):
            services.must_be_fresh()
        log.info("table_step", shard=shard.name, table=table, step=type(step).__name__, why=plan.message)
        if services.dry_run:
            return plan
        http, base = services.http, admin_base(services, shard, current.seen, step.replica)
        try:
            match step:
                case PauseTable():
                    await http.hold(base, login, table, ROLLOUT)
                case Create():
                    await self._create(current, step)
                case Alter():
                    rolling = shard.spec.rollout.strategy == "RollingRestart"
                    await http.apply(base, login, table, ddl, ROLLOUT, restart=rolling)
                case Release():
                    await http.release(base, login, table, ROLLOUT)
        except (Retryable, Blocked, Permanent) as error:
            return TablePlan(None, Reason.SCHEMA_CHANGING, f"{plan.message}: {error}", plan.revision)
        await services.kubernetes.emit(
            current.live,
            warning=plan.stalled,
            reason=EVENT_REASONS[type(step)],
            message=f"table {table}: {plan.message}",
            at=services.now(),
        )
        return plan

    async def _create(self, current: _TableReconcile, step: Create) -> None:
        """At the first replica, which records its columns, and then at the others together: one that does not answer
        costs minutes. One that fails stops no other; raises the first error."""
        services = current.services

        async def create(replica: str) -> BlockhouseError | None:
            base = admin_base(services, current.shard, current.seen, replica)
            try:
                await services.http.apply(base, current.login, current.table, current.ddl, ROLLOUT)
            except (Retryable, Blocked, Permanent) as error:
                return error
            return None

        answers = [await create(step.replica), *await asyncio.gather(*map(create, step.others))]
        for error in filter(None, answers):
            raise error


def _undeclared(table: Table, seen: ShardSeen) -> tuple[Reason, str]:
    """What is reported of a table whose DDL is not ours to run, or not there."""
    if table.ddl_from is not None:
        return Reason.SECRET_MISSING, "its DDL is not there"
    answers = [replica.aggregator for replica in seen.replicas if replica.aggregator is not None]
    found = [known for answer in answers for known in answer.tables if known.name == table.name]
    if not answers:
        return Reason.STATUS_UNKNOWN, "no aggregator of the shard answers"
    if not found:
        return Reason.TABLE_MISSING, "it is not there to be loaded, and has no DDL here"
    if held := next((known for known in found if known.unavailable and known.checked), None):
        return Reason.TABLE_BLOCKED, held.why
    unknown = next((known for known in found if not known.checked), None)
    return (Reason.STATUS_UNKNOWN, unknown.why) if unknown else (Reason.AS_SPECIFIED, "")


def _elsewhere(seen: ShardSeen, table: str, ddl: str) -> Iterator[TableAt]:
    """The table at replicas of other zones, as their operators report."""
    for report in seen.elsewhere:
        reported = report.tables.get(table, ())
        if not reported:
            yield TableAt(f"of zone {report.zone}", silence="its operator does not know the table", served=False)
        for at in reported:
            if at.ddl == ddl:
                yield replace(at, served=False)
            else:
                text = "its operator has another declaration of the table"
                yield replace(at, served=False, gap=None, silence=text)


def _status(table: str, plan: TablePlan, held_since: str = "") -> TableStatus:
    return TableStatus(
        name=table,
        revision=plan.revision,
        state=plan.reason.value,
        message=plan.message[:2000],
        held_since="" if isinstance(plan.step, Release) else held_since,
    )


def _since(at: Iterable[TableAt]) -> str:
    """Since when a rollout of the operator's holds the table, RFC 3339; empty when none does."""
    held = [each.held_since_ms for each in at if each.rollout == ROLLOUT]
    return datetime.fromtimestamp(min(held) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if held else ""


def in_progress(tables: Iterable[TableStatus]) -> bool:
    """Whether a table is on its way: look again soon."""
    return any(table.state == Reason.SCHEMA_CHANGING.value for table in tables)
