"""Tables that are dropped and created again, and tables that take another one's name: what a person does to them.

Rows that a dropped table had are gone with it, and those that an insert under way brings into a table that was renamed
stay in that one: `Table.left_behind` names them for the oracle. Everything else is in the new table, once.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.clickhouse import Part, Row, Shard, Table
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.faults import Misfortunes
    from tests.simulation.replica import Node

STALE = 10.0
"""Seconds for which a catalog may not know of it: `catalog.REFRESH`."""


class ReplacedTables:
    """Each method is done at once, on all replicas: statements with ON CLUSTER and the locks of their tables."""

    def __init__(self, world: World, nodes: list[Node], shard: Shard, misfortunes: Misfortunes) -> None:
        self._world = world
        self._nodes = nodes
        self._shard = shard
        self._misfortunes = misfortunes
        self._streams = [str(log.stream) for cluster in nodes[0].clusters.values() for log in cluster.logs]
        self._random = Random(f"{world.setting.seed} replaced tables")
        self._made = 0

    def drop(self) -> bool:
        """DROP, and CREATE at once or after a while, at the same path in ZooKeeper or at another. Inserts that are
        under way fail."""
        table = self._any(lambda table: bool(table.rows))
        if table is None:
            return False
        self._world.narrate("shard", f"t{table.number} is dropped, with {len(table.rows)} rows")
        table.dropped = True
        for name in self._streams:
            self._world.causes.setdefault(name, set()).add("UnknownTable")
        if table.pending is not None:
            table.pending = None
            table.settled.set()
        path = table.path if self._random.random() < 0.5 else self._new_path(table)
        if self._random.random() < 0.5:
            self._create(table, path)
        else:
            self._world.later(self._random.uniform(0.1, 15), self._create, table, path)
        return True

    def _create(self, former: Table, path: str) -> None:
        self._world.narrate("shard", f"t{former.number} is created, at {path}")
        self._take_the_name(
            Table(former.number, path, self._world.now_ms(), former=former, left_behind=frozenset(former.rows))
        )

    def swap(self) -> bool:
        """A copy takes the name of some table, if possible while an insert into it is under way; mostly right after
        some catalog has looked, which will know of it as late as one can. A server may be gone just when its catalog
        has seen the change and compares."""
        if self._random.random() < 0.3:
            return self._swap_any(calm=0.1)
        strike, swapped, gone = self._world.strike, list[bool](), set[int]()

        def looked(point: str, replica: int) -> None:
            strike(point, replica)
            if point != "tables compared" or self._world.healing:
                return
            if not swapped:
                self._world.later(self._random.uniform(0.01, 1.5), swap)
            elif replica not in gone and self._random.random() < 0.3:
                self._misfortunes.kill_server(self._nodes[replica], 0.5, 4)
            if swapped:
                gone.add(replica)

        def swap() -> None:
            if not swapped and not self._world.healing and self._swap_any(calm=0.5):
                swapped.append(True)

        self._world.strike = looked
        return True

    def _swap_any(self, calm: float) -> bool:
        """Of tables that nothing is sent to, a part `calm` is fine too."""
        table = self._any(lambda table: bool(self._shard.under_way(table)) or self._random.random() < calm)
        if table is None:
            return False
        self.replace_by_a_copy(table)
        return True

    def replace_by_a_copy(self, table: Table) -> None:
        """By RENAME. The copy has all rows that had their quorum, perhaps those of a part that waits for it, and hashes
        of its own. What is sent to the former table still arrives there.

        The copy is from before anything was written of what workers are sending just now: they would send it again to
        a table whose rows no one asks any more, and whose window does not know it (docs/protocol.md, "The proof")."""
        copied = [row for part in table.parts if part.safe for row in part.rows]
        if table.pending is not None and self._random.random() < 0.5:
            copied += table.pending.rows
        sent = self._misfortunes.sent()
        made_ms = self._world.now_ms() - int(self._random.uniform(0, 20) * 1000)
        copy = Table(table.number, self._new_path(table), made_ms, former=table, left_behind=frozenset(sent))
        self._fill(copy, tuple(row for row in copied if row not in sent))
        self._world.narrate("shard", f"a copy takes the name of t{table.number}: {len(copy.rows)} rows, at {copy.path}")
        self._shard.renamed.append(table)
        self._take_the_name(copy)

    def _fill(self, copy: Table, rows: tuple[Row, ...]) -> None:
        if not rows:
            return
        part = Part(("copy", copy.path), rows, 0, {server.number for server in self._shard.servers}, safe=True)
        copy.parts.append(part)
        copy.blocks[part.hash] = self._world.now_ms()
        copy.rows = dict.fromkeys(rows, part)

    def _take_the_name(self, table: Table) -> None:
        self._shard.tables[table.number] = table
        if self._random.random() < 0.8:
            self._lose_parts_of(table)

    def _any(self, fits: Callable[[Table], bool]) -> Table | None:
        tables = [table for table in self._shard.tables if not table.dropped and fits(table)]
        return self._random.choice(tables) if tables else None

    def _new_path(self, table: Table) -> str:
        self._made += 1
        return f"/default.t{table.number}.{self._made}"

    def _lose_parts_of(self, table: Table) -> None:
        """As long as catalogs do not know the new table: owners of what was written to it are gone, and so, a while
        later, are their servers with the part. Who asks the former table finds no quorum pending and no part failed."""
        strike, until = self._world.strike, self._world.loop.time() + STALE

        def lose(point: str, replica: int) -> None:
            node = self._nodes[replica]
            hurts = point == "part written" and table.pending is not None and table.pending.writer == replica
            if not hurts or self._world.healing or self._world.loop.time() > until or self._random.random() > 0.8:
                strike(point, replica)
                return
            self._world.count("part of a new table lost")
            taken_over = self._world.setting.session_timeout + 1
            least = taken_over if self._random.random() < 0.75 else 1.0  # mostly its server lives to see the next owner
            self._misfortunes.orphan(node, least, taken_over + 6)
            self._misfortunes.not_over_before(taken_over + 6)

        self._world.strike = lose
