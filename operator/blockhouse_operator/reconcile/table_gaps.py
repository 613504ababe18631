"""What lies between a replica's table and its declaration: by the status of its aggregator, asked where that is silent.

An aggregator states in its status which declaration a table equals, as long as its server has the table as it was when
they were compared; so tables that are as they should be cost no request of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from blockhouse.contract.rollouts import declaration_digest
from blockhouse.errors import Retryable
from blockhouse_operator.adapters.pipeline_http import AdminLogin
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.decide.seen import Gap, ReplicaSeen, State, TableAt, TableSeen
from blockhouse_operator.reconcile.services import Services

LOOK_AGAIN_SECONDS = 60.0
"""A table found as declared is compared again only after so long where its status does not state that it is so,
unless the aggregator reports another revision: earlier aggregators state nothing."""


@dataclass(frozen=True, slots=True)
class _Compared:
    ddl: str
    revision: int
    at: float


class TableGaps:
    """Of the tables of all shards at replicas that this operator serves."""

    def __init__(self) -> None:
        self._same: dict[tuple[str, str, str], _Compared] = {}

    async def at(
        self,
        services: Services,
        shard: ClickHouseShardIngest,
        replica: ReplicaSeen,
        table: str,
        ddl: str,
        login: AdminLogin,
    ) -> TableAt:
        """The table at the replica. Raises Permanent for a DDL that cannot be used."""
        known = replace(by_status(replica, table), ddl=declaration_digest(ddl))
        if replica.aggregator is None:  # when it answers again, its volume may be another one
            self._same.pop((shard.uid, replica.name, table), None)
            return known
        key, now = (shard.uid, replica.name, table), services.clock()
        seen = _seen(replica, table)
        if seen is not None and seen.as_declared == known.ddl:
            self._same.pop(key, None)  # once it is not stated any more, it is asked
            return replace(known, gap=Gap(True))
        same = self._same.get(key)
        if same and (same.ddl, same.revision) == (known.ddl, known.revision) and now - same.at < LOOK_AGAIN_SECONDS:
            return replace(known, gap=Gap(True))
        base = services.endpoints.aggregator(replica.name, shard.namespace, secure=replica.secure)
        try:
            gap = await services.http.gap(base, login, table, ddl)
        except Retryable as error:
            return replace(known, silence=str(error))
        if gap == Gap(True):
            self._same[key] = _Compared(known.ddl, known.revision, now)
        else:
            self._same.pop(key, None)
        return replace(known, gap=gap)


def by_status(replica: ReplicaSeen, table: str) -> TableAt:
    """What the replica's status page shows of the table."""
    aggregator = replica.aggregator
    if aggregator is None:
        return TableAt(replica.name, silence=replica.silence or "its aggregator does not run", ready=False)
    seen = _seen(replica, table)
    ready = replica.state() in (State.CONSUMING, State.STOPPED)
    busy = any(table in stream.in_flight for stream in aggregator.streams)
    due = bool(replica.restart_due)
    if seen is None:
        return TableAt(replica.name, ready=ready, busy=busy, restart_due=due)
    return TableAt(
        replica.name,
        ready=ready,
        rollout=seen.rollout,
        held_since_ms=seen.paused_since_ms,
        busy=busy,
        revision=seen.schema_revision,
        why=seen.why if seen.unavailable and seen.checked and not seen.rollout else "",
        silence="" if seen.checked else seen.why,
        restart_due=due,
    )


def _seen(replica: ReplicaSeen, table: str) -> TableSeen | None:
    tables = replica.aggregator.tables if replica.aggregator is not None else ()
    return next((found for found in tables if found.name == table), None)
