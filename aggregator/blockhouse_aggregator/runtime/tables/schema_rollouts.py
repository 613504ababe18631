"""What a rollout asks of one aggregator: pause a table, compare it with its declaration, change it, release it.

Every request may be repeated, by any client, at any time: what is done already is answered as done. It decides nothing
about other replicas; the program that rolls out observes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from blockhouse.capacity.window import WEEK, window_entries
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.contract.rollouts import DifferenceAnswer, declaration_digest
from blockhouse.errors import Blocked, Permanent
from blockhouse.schema.ddl import Declaration, DeclaredColumn, read_declaration
from blockhouse.schema.difference import Difference, add_columns_statement, create_statement
from blockhouse.schema.history import extend
from blockhouse.schema.model import TOPIC_COLUMN, TableHistory
from blockhouse_aggregator.coordination.pauses import Pause
from blockhouse_aggregator.runtime.ports import Pauses
from blockhouse_aggregator.runtime.tables.catalog import Catalog
from blockhouse_aggregator.runtime.tables.restarts import RestartRequests

log = structlog.get_logger(__name__)
Settings = Sequence[tuple[str, int]]


class DeclaredServer(Protocol):
    """The local replica, as a rollout changes it."""

    async def compared(self, declared: Declaration) -> Difference | None: ...
    async def lacking_types(self, declared: Declaration, difference: Difference | None) -> tuple[str, ...]: ...
    async def topic_type(self) -> str: ...
    async def create(self, declared: Declaration, path: str, name: str, settings: Settings) -> None: ...
    async def add_columns(self, declared: Declaration, added: Sequence[DeclaredColumn]) -> None: ...


class SchemaRollouts:
    """Runs on the event loop. `in_flight` is whether a block of a table is in flight here; `partitions` how many
    partitions the topic has."""

    def __init__(
        self,
        config: AggregatorConfig,
        pauses: Pauses,
        catalog: Catalog,
        server: DeclaredServer,
        check: Callable[[TableHistory], None],
        in_flight: Callable[[str], bool],
        partitions: Callable[[], int],
        restarting: RestartRequests,
    ) -> None:
        self._config = config
        self._pauses = pauses
        self._catalog = catalog
        self._server = server
        self._check = check
        self._in_flight = in_flight
        self._partitions = partitions
        self._restarting = restarting

    async def pause(self, table: str, rollout: str) -> Pause:
        """Pause the table in every stream of the shard. Raises Retryable, or Blocked when another rollout does."""
        pause = await self._pauses.put(table, rollout)
        await self._catalog.refresh_pauses()
        return pause

    async def release(self, table: str, rollout: str) -> bool:
        """End what `pause` began; False when it had ended. Raises as `pause` does."""
        released = await self._pauses.remove(table, rollout)
        await self._catalog.refresh_pauses()
        return released

    async def gap(self, table: str, ddl: str) -> DifferenceAnswer:
        """Compare; change nothing. Raises Retryable, or Permanent for a DDL that cannot be read or is not supported.
        A table that is as declared is stated to be so in the status from now on, for who asks need not ask again."""
        declared = await self._declared(table, ddl)
        difference = await self._server.compared(declared)
        gap = await self._gap(declared, difference)
        if difference is not None and difference.found is not None and not gap.added and not gap.refused:
            self._catalog.found_as_declared(table, declaration_digest(ddl), difference.found)
        return gap

    def restart(self, number: int) -> bool:
        """End this aggregator unless it was started after demand `number`; returns whether it ends."""
        return self._restarting.restart(number)

    async def apply(self, table: str, ddl: str, rollout: str, *, restart: bool = False) -> DifferenceAnswer:
        """Create the table here if it is missing; add what columns it lacks if this rollout pauses it and nothing of it
        is in flight, with `restart` demanding that the aggregators of the shard restart. Its schema is recorded, so
        that producers know it before the first message. Returns what was missing. Raises as `gap`, and Blocked naming
        what stands in the way."""
        declared = await self._declared(table, ddl)
        difference = await self._server.compared(declared)
        gap = await self._gap(declared, difference)
        if gap.refused:
            raise Blocked(
                f"table {table} cannot become what is declared: {'; '.join(gap.refused)}", reason="SchemaChange"
            )
        if difference is None:
            await self._server.create(declared, *self._place(table))
            log.info("rollout.created", table=table, rollout=rollout)
        elif difference.added:
            await self._require_hold(table, rollout)
            if restart:  # before: after the ALTER nothing would show that it is still due
                await self._restarting.demand(rollout)
            await self._server.add_columns(declared, difference.added)
            log.info("rollout.altered", table=table, rollout=rollout, added=gap.added)
        await self._catalog.id_of(table)
        return gap

    async def _require_hold(self, table: str, rollout: str) -> None:
        await self._catalog.refresh_pauses()
        pause = self._catalog.pause_of(table)
        if pause is None or pause.rollout != rollout:
            by = f"paused by rollout {pause.rollout}" if pause else "not paused"
            raise Blocked(f"table {table} is {by}: pause it before columns are added", reason="NotHeld")
        if self._in_flight(table):
            raise Blocked(f"table {table} has a block in flight here: wait until it is stored", reason="InFlight")

    def _place(self, table: str) -> tuple[str, str, Settings]:
        """Where in ZooKeeper the table is created, as which replica, and its settings."""
        path = f"/clickhouse/tables/{self._config.pipeline}/{self._config.shard}/{table}"
        return path, self._config.replica, self._windows(table)

    async def _gap(self, declared: Declaration, difference: Difference | None) -> DifferenceAnswer:
        added = tuple(each.column.name for each in (difference.added if difference else declared.columns))
        refused = difference.refused if difference else ()
        refused = refused or await self._server.lacking_types(declared, difference) or self._unfit(declared, difference)
        statement = "" if refused else self._statement(declared, difference)
        return DifferenceAnswer(exists=difference is not None, added=added, refused=refused, statement=statement)

    def _statement(self, declared: Declaration, difference: Difference | None) -> str:
        if difference is None:
            path, replica, settings = self._place(declared.name)
            return create_statement(declared, path=path, replica=replica, settings=settings)
        return add_columns_statement(declared, difference.added) if difference.added else ""

    async def _declared(self, table: str, ddl: str) -> Declaration:
        """With the topic's column, unless it is declared, as the shard has it: a server refuses a replica of a table
        that has another type. A table that the shard does not have gets it as this server makes it."""
        declared = read_declaration(table, ddl)
        known = self._catalog.known(table)
        current = known.history.current if known else None
        types = [column.type for column in current.columns if column.name == TOPIC_COLUMN] if current else []
        return declared.with_topic_type(types[0] if types else await self._server.topic_type())

    def _unfit(self, declared: Declaration, difference: Difference | None) -> tuple[str, ...]:
        """Why the table, if it were as declared, could not be loaded: for example a default that cannot be computed.
        Columns that it has are taken as it has them, for the two may be spelled differently."""
        known = self._catalog.known(declared.name)
        history = known.history if known else TableHistory(id=1, name=declared.name)
        found = difference.found.columns if difference is not None and difference.found is not None else ()
        has = {column.name: column for column in found}
        try:
            self._check(extend(history, [has.get(each.column.name, each.column) for each in declared.columns]))
        except (Permanent, Blocked) as error:
            return (str(error),)
        return ()

    def _windows(self, table: str) -> tuple[tuple[str, int], ...]:
        override = self._config.blocks.tables.get(table)
        age = override.max_age if override else self._config.blocks.max_age
        per_second = self._partitions() * len(self._config.kafka.clusters) / age  # a block per stream and `maxAge`
        return (
            ("replicated_deduplication_window", window_entries(per_second)),
            ("replicated_deduplication_window_seconds", WEEK),
        )
