"""The local replica as a rollout changes it, over a connection of its own: an ALTER may wait long for a merge."""

from __future__ import annotations

from collections.abc import Sequence

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.schema.ddl import Declaration, DeclaredColumn
from blockhouse.schema.difference import Difference
from blockhouse_aggregator.clickhouse import declared as server
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.runtime.threads import Threads

PATIENCE = 120.0
"""Seconds for one statement."""


class DeclaredReplica:
    """`rollouts.DeclaredServer`."""

    def __init__(self, config: AggregatorConfig) -> None:
        self._replica = Replica(config.clickhouse, timeout=PATIENCE)
        self._threads = Threads("ddl", 1)

    async def compared(self, declared: Declaration) -> Difference | None:
        """What lies between the server's table and the declaration; None without a table. Raises BlockhouseError."""
        return await self._threads.run(server.compared, self._replica, declared)

    async def lacking_types(self, declared: Declaration, difference: Difference | None) -> tuple[str, ...]:
        """Why columns cannot be added: the server has no such types. Raises BlockhouseError."""
        return await self._threads.run(server.lacking_types, self._replica, declared, difference)

    async def topic_type(self) -> str:
        """Of the topic's column in a table that no other replica has. Raises BlockhouseError."""
        return await self._threads.run(server.topic_type, self._replica)

    async def create(self, declared: Declaration, path: str, name: str, settings: Sequence[tuple[str, int]]) -> None:
        """Create it at `path` in ZooKeeper as the replica `name`, with these MergeTree settings. Raises
        BlockhouseError."""
        await self._threads.run(server.create, self._replica, declared, path=path, name=name, settings=settings)

    async def add_columns(self, declared: Declaration, added: Sequence[DeclaredColumn]) -> None:
        """Add these columns in one ALTER. Raises BlockhouseError; the ALTER may then still happen."""
        await self._threads.run(server.add_columns, self._replica, declared, added)
