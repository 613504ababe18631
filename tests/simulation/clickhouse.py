"""One shard of ClickHouse: replicas, parts, the deduplication window, and a quorum that may be met late or never.

Behaviour as measured on 18.16: the hash of a block's part in each ClickHouse partition is remembered for `window`
blocks or seconds; one part at a time waits for its quorum; when the writer's session ends before anybody has fetched
the part, it fails, and its hash leaves the window with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from tests.simulation.clock import Process
from tests.simulation.server import Server
from tests.simulation.world import World

TICK = 0.5
Row = tuple[int, int, int, int]
"""Number of the stream, and the message: offset, incarnation of its topic, cut of its log."""
Hash = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class Part:
    """Rows in one ClickHouse partition; `have` are the replicas that hold it. `safe` once its quorum was met."""

    hash: Hash
    rows: tuple[Row, ...]
    writer: int
    have: set[int]
    safe: bool = False
    name: str = ""
    """Its own, or that of the part into which it was merged."""


@dataclass(slots=True)
class Table:
    """What ZooKeeper and the replicas hold of one table. `path` is its node, made at `made_ms`. One that took the name
    of a `former` table does not have what `left_behind` holds of that: those rows are gone with it, on purpose."""

    number: int
    path: str = ""
    made_ms: int = 0
    former: Table | None = None
    left_behind: frozenset[Row] = frozenset()
    dropped: bool = False
    detached: bool = False
    """Its partitions were detached and attached once: hashes of blocks are gone that nothing else shows."""
    deletions: list[int] = field(default_factory=list)
    """When mutations deleted rows, in the servers' milliseconds."""
    deleted: set[Row] = field(default_factory=set)
    blocks: dict[Hash, int] = field(default_factory=dict)
    under_way: Counter[Hash] = field(default_factory=Counter)
    """Inserts of blocks that were known when they arrived, and which have not ended."""
    parts: list[Part] = field(default_factory=list)
    pending: Part | None = None
    failed: dict[str, int] = field(default_factory=dict)
    """Parts that failed, and when, in the servers' milliseconds."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    rows: dict[Row, Part] = field(default_factory=dict)
    fetches_stopped: bool = False
    altered: bool = False
    """Its columns have other types than those recorded."""


class Shard:
    """All replicas of one shard and their tables. `doubled` hears of a row that is written twice."""

    def __init__(self, world: World) -> None:
        setting = world.setting
        self.world = world
        self.tables = [Table(number, f"/default.t{number}") for number in range(setting.tables)]
        """Those that have the names now, or had them last."""
        self.renamed: list[Table] = []
        """Those that had one and have another now."""
        self.servers = [Server(world, n, n % 2 if setting.zoned else 0) for n in range(setting.replicas)]
        self.doubled: Callable[[Table, Row], None] = lambda _t, _r: None
        self.written = 0
        self._under_way: list[tuple[Process, Table, list[tuple[Hash, tuple[Row, ...]]]]] = []
        world.later(TICK, self._tick)
        world.later(setting.cleaner, self._clean)

    # --- inserts --------------------------------------------------------------------------------------------

    async def insert(
        self, server: Server, table: Table, parts: list[tuple[Hash, tuple[Row, ...]]], timeout: float
    ) -> bool:
        """Write a block, part after part; True when one of them was there already. Raises a server's error."""
        known = [hash_ for hash_, _ in parts if hash_ in table.blocks]
        table.under_way.update(known)
        this = (server.process, table, parts)
        self._under_way.append(this)
        try:
            return await self._insert(server, table, parts, timeout)
        finally:
            table.under_way.subtract(known)
            self._under_way.remove(this)

    def repair(self, table: Table, rows: tuple[Row, ...]) -> None:
        """Rows that a repair stores, on all replicas."""
        part = Part(("repair", rows), rows, 0, {server.number for server in self.servers}, safe=True)
        table.parts.append(part)
        for row in rows:
            if row in table.rows:
                self.doubled(table, row)
            table.rows[row] = part

    def under_way(self, of: Table | None = None) -> list[tuple[Row, ...]]:
        """Rows of all inserts that have not ended, of servers that live; of one table, or of all."""
        self._under_way = [insert for insert in self._under_way if insert[0].alive]
        return [rows for _, table, parts in self._under_way if of in (None, table) for _, rows in parts]

    def at(self, path: str | None) -> Table | None:
        """The table whose node in ZooKeeper this is."""
        there = (table for table in (*self.tables, *self.renamed) if not table.dropped)
        return next((table for table in there if table.path == path), None)

    async def _insert(
        self, server: Server, table: Table, parts: list[tuple[Hash, tuple[Row, ...]]], timeout: float
    ) -> bool:
        world, seen = self.world, False
        world.strike("insert arrives", server.number)
        await asyncio.sleep(world.trip(server.zone, 0) * 3)
        for hash_, rows in parts:
            early = hash_ in table.blocks and world.chance(world.setting.chances.early_ok)
            if not early and table.pending is not None:
                raise server.error(286, "an earlier part waits for its quorum")
            if world.chance(world.setting.chances.slow_insert):
                await asyncio.sleep(world.random.uniform(0.5, 2 * world.setting.quorum_timeout))
            await asyncio.sleep(world.random.uniform(0.002, 0.03))
            if table.dropped:
                raise server.error(218, "the table is dropped")
            if not server.writable:
                raise server.error(999, "session expired")
            if sum(s.active for s in self.servers) < 2:
                raise server.error(285, "too few live replicas")
            if hash_ in table.blocks:
                world.narrate(server.process.name, f"t{table.number}: knows {_text(rows)} already")
                seen = True
            elif table.pending is not None:
                raise server.error(286, "an earlier part waits for its quorum")
            else:
                await self._write(server, table, hash_, rows, timeout)
        return seen

    async def _write(self, server: Server, table: Table, hash_: Hash, rows: tuple[Row, ...], timeout: float) -> None:
        self.written += 1
        part = Part(hash_, rows, server.number, {server.number}, name=str(self.written))
        table.blocks[hash_] = self.world.now_ms()
        for row in rows:
            if row in table.rows or row in table.deleted:
                self.doubled(table, row)
            table.rows[row] = part
        table.parts.append(part)
        table.pending, table.settled = part, asyncio.Event()
        self.world.narrate(server.process.name, f"t{table.number}: writes {_text(rows)}, waits for its quorum")
        for other in self.servers:
            if other is not server:
                self._fetch_later(other, table, part)
        self.world.strike("part written", server.number)
        try:
            async with asyncio.timeout(timeout):
                await table.settled.wait()
        except TimeoutError:
            raise server.error(319, "quorum not met in time") from None
        if not part.safe:
            raise server.error(319, "the part failed")

    def _fetch_later(self, server: Server, table: Table, part: Part) -> None:
        slow = self.world.chance(self.world.setting.chances.slow_fetch)
        delay = self.world.random.uniform(1, 8) if slow else self.world.random.uniform(0.02, 0.25)
        self.world.later(delay, self._fetch, server, table, part)

    def _fetch(self, server: Server, table: Table, part: Part) -> None:
        if server.number in part.have or table.rows.get(part.rows[0]) is not part:
            return
        source = any(
            (s := self.servers[n]).process.running and self.world.linked(s.zone, server.zone) for n in part.have
        )
        if not source or not server.writable or table.fetches_stopped:
            self.world.later(self.world.random.uniform(0.5, 1.5), self._fetch, server, table, part)
            return
        part.have.add(server.number)
        if table.pending is part and len(part.have) >= 2:
            part.safe = True
            table.pending = None
            table.settled.set()

    # --- what happens by itself ------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = self.world.loop.time()
        for server in self.servers:
            if server.in_touch and now >= server.idle_until:
                if not server.active:
                    server.kept.clear()
                server.heard, server.active = now, True
            elif server.active and self.world.zookeeper_up and now - server.heard > self.world.setting.server_session:
                self.expire(server)
        self.world.later(TICK, self._tick)

    def expire(self, server: Server) -> None:
        """Its session is over; it has the next one as soon as it is in touch."""
        server.active = False
        for table in (*self.tables, *self.renamed):
            if table.pending is not None and table.pending.writer == server.number:
                self._fail(table, table.pending)

    def _fail(self, table: Table, part: Part) -> None:
        self.world.narrate("shard", f"t{table.number}: {_text(part.rows)} is lost with its writer r{part.writer}")
        self.world.count("part lost with its writer")
        table.failed[part.name] = self.world.now_ms()
        table.pending = None
        table.parts.remove(part)
        table.blocks.pop(part.hash, None)
        for row in part.rows:
            if table.rows.get(row) is part:
                del table.rows[row]
        table.settled.set()
        writer = self.servers[part.writer]
        if not writer.process.alive and self.world.chance(self.world.setting.chances.started_early):
            writer.start()
            writer.idle_until = self.world.loop.time() + 10
            writer.kept.append((table, part))
            self.world.narrate(writer.process.name, f"was started already, still has {_text(part.rows)}")
            self.world.count("started early")

    def _clean(self) -> None:
        """Keep the newest `window` blocks that are not too old. None is forgotten within twice the lifetime of a grant,
        nor while a server is busy with an insert of it: that is what the protocol takes for granted of a window
        (docs/simulation.md), however many blocks are written."""
        setting, now = self.world.setting, self.world.now_ms()
        oldest, young = now - setting.window_seconds * 1000, now - int(4 * setting.quorum_timeout + 2) * 1000
        for table in self.tables:
            newest = set(list(table.blocks)[-setting.window :])
            table.blocks = {
                hash_: made
                for hash_, made in table.blocks.items()
                if made >= young or table.under_way[hash_] or (hash_ in newest and made >= oldest)
            }
        self.world.later(setting.cleaner, self._clean)

    # --- questions ------------------------------------------------------------------------------------------

    async def rows_of(
        self, server: Server, table: Table, stream: int, topic: str, begin: int, end: int, failed: Collection[str] = ()
    ) -> dict[int, int]:
        """Only if this replica has all rows that reached their quorum, and none of those that `failed`."""
        incarnation = int(topic.rpartition("-")[2])
        await asyncio.sleep(self.world.random.uniform(0.003, 0.02))
        if table.dropped:
            raise server.error(60, "no such table")
        if not server.writable and not server.idle:
            raise server.error(242, "read only")
        if any(part.safe and server.number not in part.have for part in table.parts):
            raise server.error(289, "this replica lacks a part")
        found: dict[int, int] = {}
        kept = [part for of, part in server.kept if of is table]
        for part in (*(part for part in table.parts if part.safe), *kept):
            for number, offset, of, _ in part.rows:
                if number == stream and begin <= offset <= end and of == incarnation:
                    if part.name in failed:
                        raise ServerFault("rows are in a part that failed", fault=Fault.REPLICA, after=1.0)
                    found[offset] = found.get(offset, 0) + 1
        return found


def _text(rows: tuple[Row, ...]) -> str:
    return f"s{rows[0][0]}[{rows[0][1]}..{rows[-1][1]}] ({len(rows)} rows)"
