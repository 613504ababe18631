"""The real `ports.Shard`: blocking calls run in threads of their own, those to ClickHouse beside those to ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import structlog

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import Permanent
from blockhouse_aggregator.clickhouse import provenance, tables
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.identities import Identities
from blockhouse_aggregator.clickhouse.lost_parts import lost_parts
from blockhouse_aggregator.clickhouse.presence import Origin, StoredRows
from blockhouse_aggregator.clickhouse.quorum import QuorumProbe, QuorumSnapshot, few_enough
from blockhouse_aggregator.clickhouse.removals import why_not_to_insert_again
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.coordination.claims import ACCESS_DENIED, TableClaims
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.runtime.threads import Threads

log = structlog.get_logger(__name__)


class LocalShard:
    """`ports.Shard` over one connection to the local replica and the session to ZooKeeper."""

    def __init__(self, config: AggregatorConfig, session: Session) -> None:
        self._replica = Replica(config.clickhouse)
        self._probe = QuorumProbe(session.client)
        self._identities = Identities(session, config.shard)
        who = f"{config.zookeeper.root} shard {config.shard} group {config.kafka.group}"
        self._claims = TableClaims(session, who)
        self._queries = Threads("clickhouse", 1)
        self._znodes = Threads("quorum", 8)

    async def describe(self, table: str) -> ServerTable | None:
        database, _, name = table.partition(".")
        found = await self._queries.run(tables.describe, self._replica, database, name)
        if found is None or found.zookeeper_path is None or found.replica_name is None:
            return found
        tokens = (await self._queries.run(self._replica.features)).deduplication_token
        started_ms = await self._queries.run(tables.started_ms, self._replica)
        of = partial(self._identities.of, tokens=tokens, started_ms=started_ms)
        return replace(
            found,
            identity=await self._znodes.run(of, found.zookeeper_path, found.replica_name),
            lacking=await self._znodes.run(self._probe.lacking, found.zookeeper_path),
        )

    async def fingerprints(self) -> Mapping[str, int]:
        """One number per table that changes when any column does, its engine, or what views hang on it."""
        return await self._queries.run(tables.fingerprints, self._replica)

    async def queue_lengths(self) -> Mapping[str, int]:
        """Entries of each replicated table's queue that this replica has not carried out yet."""
        rows = await self._queries.run(
            self._replica.query, "SELECT concat(database, '.', table), queue_size FROM system.replicas"
        )
        return dict(rows)

    async def lost_parts(self) -> Mapping[str, int]:
        """See `clickhouse.lost_parts`."""
        return await self._queries.run(lost_parts, self._replica)

    async def unfit(self) -> str:
        """Why the replica cannot take rows now; empty when it can. Raises Retryable when it does not answer."""
        rows = await self._queries.run(
            self._replica.query,
            "SELECT concat(database, '.', table) FROM system.replicas WHERE is_readonly OR is_session_expired LIMIT 3",
        )
        return f"read-only: {', '.join(name for (name,) in rows)}" if rows else ""

    async def quorum(self, table: ServerTable) -> QuorumSnapshot:
        if table.zookeeper_path is None:
            return QuorumSnapshot(pending=False, failed_parts_version=0)
        return await self._znodes.run(self._probe.snapshot, table.zookeeper_path)

    async def failed_parts(self, table: ServerTable) -> tuple[str, ...]:
        if table.zookeeper_path is None:
            return ()
        return await self._znodes.run(self._probe.failed_parts, table.zookeeper_path)

    async def blocks_since(self, table: ServerTable, since_ms: int, *, older_than_ms: int) -> int:
        if table.zookeeper_path is None:
            return 0
        enough = few_enough(table.deduplication_window)
        count = partial(self._probe.blocks_since, enough=enough, older_than_ms=older_than_ms)
        return await self._znodes.run(count, table.zookeeper_path, since_ms)

    async def rows_removed(self, table: ServerTable, since_ms: int) -> str:
        return await self._queries.run(why_not_to_insert_again, self._replica, table, since_ms)

    async def altered_since(self, table: ServerTable, since_ms: int) -> bool:
        if table.zookeeper_path is None or table.replica_name is None:
            return True
        return await self._znodes.run(self._probe.altered_since, table.zookeeper_path, table.replica_name, since_ms)

    async def claimed(self, table: ServerTable, cluster: str, topic: str) -> bool:
        """Where the place of claims is another login's, nothing is claimed, as before there were claims."""
        if table.zookeeper_path is None:
            return True
        claim, topics = self._claims.claim, (cluster, topic)
        try:
            return await self._znodes.run(claim, table.full_name, table.zookeeper_path, topics, table.provenance)
        except Permanent as denied:
            if denied.reason != ACCESS_DENIED:
                raise
            log.warning("table.not_claimed", table=table.full_name, why=str(denied))
            return True

    async def stored(
        self, table: ServerTable, origin: Origin, begin: int, end: int, failed: Sequence[str] = ()
    ) -> StoredRows:
        ask = partial(provenance.stored_rows, failed=failed)
        return await self._queries.run(ask, self._replica, table, origin, begin, end)

    def close(self) -> None:
        self._queries.close()
        self._znodes.close()
