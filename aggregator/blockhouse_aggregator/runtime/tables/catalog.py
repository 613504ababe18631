"""The tables of the pipeline as the driver knows them: ids for the metadata, revisions for workers, reasons to wait.

A table is *usable* when the local replica has it, its columns are the current revision of the history, and every column
can be encoded. Any other table is *unavailable*: its messages lag, the others flow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from blockhouse.errors import Blocked, BlockhouseError, Retryable
from blockhouse.schema.difference import FoundTable
from blockhouse.schema.history import extend
from blockhouse.schema.model import Revision, TableHistory
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.coordination.pauses import Pause
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.ports import Ports
from blockhouse_aggregator.runtime.tables.arriving_columns import check_arrived

log = structlog.get_logger(__name__)
REFRESH = 10.0
"""Seconds between reads of the server's columns: a change behind our back is noticed well within 30."""
UNKNOWN_REFRESH = 2.0
BELIEVED = 60.0
"""Seconds for which what was read of the server is believed while later reads fail."""
ROLLOUT = "SchemaRollout"
"""Why a table is unavailable that a rollout pauses."""
NOT_CHECKED = "NotChecked"
_NOT_COMPARED = "not compared with the server yet"
PASSING = ("", ROLLOUT, NOT_CHECKED)
"""Why a table is unavailable for a while only, or not at all."""


@dataclass(frozen=True, slots=True)
class Known:
    """A table with what is known of it. `unavailable` (a CamelCase reason) and `why` (text) are why it is not loaded,
    empty when it is."""

    history: TableHistory
    server: ServerTable | None = None
    unavailable: str = ""
    why: str = ""
    version: int = 0


class Catalog:
    """All tables seen on the streams or in the history. Not thread-safe: used on the event loop only."""

    def __init__(
        self, ports: Ports, check: Callable[[TableHistory, ServerTable], None], database: str = "default"
    ) -> None:
        self.database = database
        self._ports = ports
        self._check = check
        self._tables: dict[str, Known] = {}
        self._names: dict[int, str] = {}
        self._prints: dict[str, int | None] = {}
        """Of each table when it was last compared: one that could not be is asked again."""
        self._checked_at: dict[str, float] = {}
        """When each table was last known to be as the server has it, by the loop's clock."""
        self._declared: dict[str, tuple[str, ServerTable]] = {}
        """Of each table the declaration it was found to equal, by its digest, and what is known of it since."""
        self._version = 0
        self._pauses: Mapping[str, Pause] = {}
        self._refreshing = asyncio.Lock()
        self._identity = ""

    async def identity(self) -> str:
        """Of the schema history, as it was when it was read first: every id here is one of it."""
        if not self._identity:
            self._identity = await self._ports.schemas.identity()
        return self._identity

    @property
    def version(self) -> int:
        """Raised whenever any table changes: what was sent to a task at version v is current while this is v."""
        return self._version

    @property
    def tables(self) -> Sequence[Known]:
        return tuple(self._tables.values())

    def name(self, table_id: int) -> str:
        """`database.table` of a table's id; `#id` of an unknown one."""
        return self._names.get(table_id, f"#{table_id}")

    def known(self, table: str) -> Known | None:
        """What is known of `database.table`; None of one that no stream and no history names."""
        return self._tables.get(table)

    def by_id(self, table_id: int) -> Known | None:
        """As `known`, by the id of the metadata."""
        return self._tables.get(self.name(table_id))

    def unavailable(self) -> frozenset[int]:
        """Ids of tables that are not loaded now, for whatever reason."""
        return frozenset(known.history.id for known in self._tables.values() if known.unavailable)

    def pause_of(self, table: str) -> Pause | None:
        """The rollout that pauses the table, if one does: nothing of the table may then be sealed."""
        return self._pauses.get(table)

    def hopeless(self) -> Mapping[int, str]:
        """Unavailable tables that a person has to fix, with the reason."""
        return {k.history.id: k.unavailable for k in self._tables.values() if k.unavailable not in PASSING}

    def dead_lettered(self, every: bool, allowed: int) -> frozenset[int]:
        """Unknown tables whose messages are dead-lettered: `every` one, or those beyond the `allowed` oldest, so that a
        producer that invents names cannot fill the metadata."""
        unknown = sorted(k.history.id for k in self._tables.values() if k.unavailable == "UnknownTable")
        return frozenset(unknown if every else unknown[allowed:])

    def changed_since(self, version: int) -> tuple[TableHistory, ...]:
        """Histories of usable tables that changed after `version`."""
        return tuple(k.history for k in self._tables.values() if k.version > version and not k.unavailable)

    def can_rebuild(self, table_id: int, revision: int) -> bool:
        """Whether a block encoded with the revision can be rebuilt and sent. A paused table's can: the process
        that pauses it waits until its block in flight is stored; and if the server refuses it, the block is blocked for
        that reason."""
        known = self.by_id(table_id)
        return known is not None and known.server is not None and known.history.revision(revision) is not None

    def why_not(self, table_id: int) -> str:
        """The reason for which a person has to fix the table before it can be loaded; empty when there is none."""
        known = self.by_id(table_id)
        return known.unavailable if known is not None and known.unavailable not in PASSING else ""

    def found_as_declared(self, table: str, digest: str, found: FoundTable) -> None:
        """The server's table was `found`, which is as the declaration of this digest."""
        known = self._tables.get(table)
        if known is not None and known.server is not None and known.server.definition == found:
            self._declared[table] = (digest, known.server)

    def as_declared(self, known: Known) -> str:
        """Digest of the declaration that a loaded table equals, by the last refresh; empty where that is not known: it
        was not compared, or was described again since, or refreshes have failed for long."""
        table = known.history.name
        digest, server = self._declared.get(table, ("", None))
        if server is None or server is not known.server or known.unavailable:
            return ""
        return digest if loop_time() - self._checked_at.get(table, float("-inf")) <= BELIEVED else ""

    async def start(self) -> None:
        """Read the history and compare it with the server. Raises Retryable while either is unavailable."""
        self._pauses = await self._ports.pauses.all()
        await self.identity()
        for history in (await self._ports.schemas.all()).values():
            self._put(Known(history, unavailable=NOT_CHECKED, why=_NOT_COMPARED))
        await self.refresh()

    async def id_of(self, table: str) -> int:
        """The table's id, allocated now when the table is seen for the first time."""
        if table not in self._tables:
            history = await self._ports.schemas.ensure_id(table)
            if table not in self._tables:  # another stream may have met it meanwhile
                self._put(Known(history, unavailable=NOT_CHECKED, why=_NOT_COMPARED))
            await self._examine(table)
        return self._tables[table].history.id

    async def know(self, needed: Mapping[int, int]) -> None:
        """Know these tables by their ids, each with the revision of that number (0: any): other aggregators may have
        recorded them since the last look.

        Raises Retryable while ZooKeeper is unavailable, Blocked when the history lacks one: without its name a table's
        messages would be read as those of a new one.
        """
        if all(self._has(table, revision) for table, revision in needed.items()):
            return
        async with self._refreshing:
            await self._learn()
            for table in [table for table, known in self._tables.items() if known.unavailable == NOT_CHECKED]:
                await self._examine(table)
        lacking = [f"table {self.name(t)} (revision {n or 1})" for t, n in needed.items() if not self._has(t, n)]
        if lacking:
            text = f"the metadata names what the schema history in ZooKeeper lacks: {', '.join(lacking)}; restore it"
            raise Blocked(text, reason="SchemaHistoryIncomplete")

    def _has(self, table_id: int, revision: int) -> bool:
        known = self.by_id(table_id)
        return known is not None and (revision == 0 or known.history.revision(revision) is not None)

    async def refresh(self) -> None:
        """Compare every table with the server and the history; a changed one gets a new revision or is unavailable."""
        async with self._refreshing:
            began = loop_time()
            prints = await self._ports.shard.fingerprints()
            await self._learn()
            for table, known in list(self._tables.items()):
                due = known.unavailable or prints.get(table) != self._prints.get(table)
                if due and not await self._examine(table):
                    continue
                self._prints[table], self._checked_at[table] = prints.get(table), began

    async def _learn(self) -> None:
        """Read what was recorded elsewhere since the last look."""
        for table, history in (await self._ports.schemas.all()).items():
            known = self._tables.get(table)
            if known is None or known.history != history:
                server = known.server if known is not None else None
                self._put(Known(history, server, unavailable=NOT_CHECKED, why="a revision was recorded elsewhere"))
                self._prints.pop(table, None)

    async def refresh_pauses(self) -> None:
        """Obey what rollouts pause by now, and look again at what they released."""
        async with self._refreshing:
            before = self._pauses
            self._pauses = await self._ports.pauses.all()
            for table in before.keys() ^ self._pauses.keys():
                if table in self._tables:
                    await self._examine(table)

    async def refresh_unknown(self) -> None:
        """Look again for tables the server did not have."""
        async with self._refreshing:
            for table, known in list(self._tables.items()):
                if known.unavailable:
                    await self._examine(table)

    async def _examine(self, table: str) -> bool:
        """Whether it could be compared."""
        known = self._tables[table]
        if table in self._pauses:
            self._changed(known, self._held(known))
            if known.server is not None:
                return False  # its columns may be changing: judged when it is released
        try:
            changed = await self._judged(known)
        except Retryable as error:
            log.warning("catalog.table_not_checked", table=table, error=str(error))
            return False
        self._changed(self._tables[table], self._held(changed))
        return True

    async def _judged(self, known: Known) -> Known:
        """As the server has it, and whether it can be loaded so; of what a rollout pauses that is not asked."""
        try:
            server = await self._ports.shard.describe(known.history.name)
            known = replace(known, server=server)
            if server is None:
                return replace(known, unavailable="UnknownTable", why="the server has no such table")
            if known.history.name in self._pauses:
                return replace(known, unavailable=NOT_CHECKED, why="its columns may be changing")
            check_arrived(known.history, server)  # before they are recorded: then producers may send them
            known = replace(known, history=await self._recorded(known.history, server))
            self._check(known.history, server)
        except Retryable:
            raise
        except BlockhouseError as error:
            return replace(known, unavailable=error.reason or "Refused", why=str(error))
        return replace(known, unavailable="", why="")

    def _held(self, known: Known) -> Known:
        pause = self._pauses.get(known.history.name)
        return replace(known, unavailable=ROLLOUT, why=f"paused by rollout {pause.rollout}") if pause else known

    def _changed(self, known: Known, changed: Known) -> None:
        if changed != known:
            self._put(changed)
            log.log(
                30 if changed.unavailable else 20,
                "catalog.table",
                table=changed.history.name,
                held=changed.unavailable,
                why=changed.why,
            )

    async def _recorded(self, history: TableHistory, server: ServerTable) -> TableHistory:
        """The history with the server's columns as its last revision, appended by the first process that sees them."""
        extended = extend(history, server.columns)
        if extended is history or extended.current is None:
            return history
        revision: Revision = extended.current
        return await self._ports.schemas.append(history.name, len(history.revisions), revision)

    def _put(self, known: Known) -> Known:
        self._version += 1
        stored = replace(known, version=self._version)
        self._tables[known.history.name] = stored
        self._names[known.history.id] = known.history.name
        return stored
