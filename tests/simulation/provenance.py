"""What a replica answers when it is asked for the rows of a block: the product's questions, over simulated parts.

Between the list of parts and the rows that are read of them, parts may merge: their rows are in another part then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from blockhouse.schema.model import TOPIC_COLUMN
from blockhouse_aggregator.blocks import asking
from blockhouse_aggregator.clickhouse.presence import Absent, Complete, Origin, Partial
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.gate.messages import Grant
from tests.simulation.clickhouse import Part, Table
from tests.simulation.server import Server
from tests.simulation.world import World

NEWEST_ROWS = 6
"""In place of `clickhouse.provenance.NEWEST_ROWS`: a simulated table has a few dozen rows."""
MERGES = 0.5


class SimReplica:
    """In place of `clickhouse.client.Replica`, for one question about one stream's rows."""

    def __init__(self, server: Server, table: Table, stream: int) -> None:
        self.name = server.process.name
        self._server, self._table, self._stream = server, table, stream

    def query(
        self, sql: str, values: Mapping[str, Any] | None = None, *, settings: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        if "system.replicas" in sql:
            return [(0, 1, 0, int(self._lacks_a_part()), self._table.path)]
        if "system.tables" in sql:
            return []  # of a table without TTL
        if "system.mutations" in sql:
            assert values is not None
            return [("DELETE WHERE 1",) for at_ms in self._table.deletions if at_ms // 1000 >= values["since"]]
        if "system.parts" in sql:
            return self._listed()
        if settings is not None:  # the witness
            return []
        assert values is not None
        return self._rows(values, any_topic=TOPIC_COLUMN not in sql)

    def _lacks_a_part(self) -> bool:
        return any(part.safe and self._server.number not in part.have for part in self._table.parts)

    def _active(self) -> list[Part]:
        """Those with their quorum, and what an idle server still has of parts that failed."""
        kept = [part for of, part in self._server.kept if of is self._table]
        return [*(part for part in self._table.parts if part.safe), *kept]

    def _listed(self) -> list[tuple[str, int]]:
        """Names and numbers of rows, the newest first; some merge right after."""
        listed: dict[str, int] = {}
        for part in reversed(self._active()):
            listed[_name(part)] = listed.get(_name(part), 0) + len(part.rows)
        merge(self._server.world, [part for part in self._active() if part.safe])
        return list(listed.items())

    def _rows(self, values: Mapping[str, Any], *, any_topic: bool) -> list[tuple[int, int, int, list[int]]]:
        incarnation, only = int(values["topic"].rpartition("-")[2]), values["parts"]
        found: dict[int, int] = {}
        failed: dict[int, int] = {}
        for part in self._active():
            if only and _name(part) not in only:
                continue
            for number, offset, of, _ in part.rows:
                asked = number == self._stream and values["begin"] <= offset <= values["end"]
                if asked and (any_topic or of == incarnation):
                    found[offset] = found.get(offset, 0) + 1
                    failed[offset] = failed.get(offset, 0) + (part.name in values["failed"])
        return [(offset, count, failed[offset], [0] * count) for offset, count in found.items()]


async def presence(
    server: Server, table: Table, stream: int, *, described: ServerTable, grant: Grant, origin: Origin,
    expected: Mapping[int, int],
) -> Complete | Absent | Partial:  # fmt: skip
    """As `blocks.asking.presence`; a server's error besides."""
    await asyncio.sleep(server.world.random.uniform(0.003, 0.02))
    if table.dropped:
        raise server.error(60, "no such table")
    if not server.writable and not server.idle:
        raise server.error(242, "read only")
    replica: Any = SimReplica(server, table, stream)
    return asking.presence(replica, described, grant, origin, expected)


def merge(world: World, parts: list[Part]) -> None:
    """Some neighbours become one, under a name of its own."""
    if len(parts) < 2 or not world.chance(MERGES):
        return
    first = world.random.randrange(len(parts) - 1)
    merged = parts[first : world.random.randint(first + 2, len(parts))]
    name = f"merged {id(merged)} {world.loop.steps}"
    for part in merged:
        part.name = name


def _name(part: Part) -> str:
    return part.name or f"part {id(part)}"
