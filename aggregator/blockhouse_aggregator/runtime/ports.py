"""What the driver needs from the outside world, as small asynchronous interfaces.

The adapters in `adapters.py` put the real clients behind them, the simulation its own. Every method raises
blockhouse.errors (Retryable: ask again later; Permanent, Blocked: as they say) and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from blockhouse.schema.model import Revision, TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.clickhouse.presence import StoredRows
from blockhouse_aggregator.clickhouse.quorum import QuorumSnapshot
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.coordination.holds import Hold
from blockhouse_aggregator.coordination.markers import Decision
from blockhouse_aggregator.coordination.restarts import RestartDemand
from blockhouse_aggregator.runtime.survey import TableCount


class Fate(Enum):
    """What became of a commit."""

    COMMITTED = "committed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CommitResult:
    fate: Fate
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What Kafka says of a stream when it is assigned; see `protocol.takeover.Facts`."""

    offset: int | None
    metadata: str
    log_begin: int
    log_end: int
    topic_id: str
    compacted: bool


class Group(Protocol):
    """The consumer groups of all clusters."""

    async def commit(self, stream: StreamId, epoch: int, offset: int, metadata: str) -> CommitResult: ...
    async def facts(self, stream: StreamId, epoch: int) -> StreamFacts: ...
    async def retention(self, stream: StreamId) -> float | None: ...
    async def offset_at(self, stream: StreamId, timestamp_ms: int) -> int: ...
    async def survey(
        self, stream: StreamId, start: int, stop: int, ranges: Mapping[str, tuple[int, int]]
    ) -> Mapping[str, TableCount]: ...


class Shard(Protocol):
    """The local replica and what ZooKeeper says of the shard's tables."""

    async def describe(self, table: str) -> ServerTable | None: ...
    async def fingerprints(self) -> Mapping[str, int]: ...
    async def quorum(self, table: ServerTable) -> QuorumSnapshot: ...
    async def blocks_since(self, table: ServerTable, since_ms: int) -> int: ...
    async def altered_since(self, table: ServerTable, since_ms: int) -> bool: ...
    async def stored(self, table: ServerTable, stream: StreamId, begin: int, end: int) -> StoredRows: ...


class Lease(Protocol):
    """A held lock. `valid` turns False when the session that holds it is lost."""

    @property
    def valid(self) -> bool: ...


class Locks(Protocol):
    """One lock per table of the shard, among all its replicas. `release` takes only what `acquire` gave."""

    async def acquire(self, table: str, timeout: float) -> Lease | None: ...
    async def release(self, lease: Any) -> None: ...


class Schemas(Protocol):
    """The append-only schema history."""

    async def all(self) -> Mapping[str, TableHistory]: ...
    async def ensure_id(self, table: str) -> TableHistory: ...
    async def append(self, table: str, known_revisions: int, revision: Revision) -> TableHistory: ...


class Holds(Protocol):
    """Tables of the shard that a rollout holds."""

    async def all(self) -> Mapping[str, Hold]: ...
    async def put(self, table: str, rollout: str) -> Hold: ...
    async def remove(self, table: str, rollout: str) -> bool: ...


class Restarts(Protocol):
    """Demands on the shard's aggregators to restart."""

    async def latest(self) -> RestartDemand: ...
    async def add(self, rollout: str) -> RestartDemand: ...


class Markers(Protocol):
    """Durable facts about streams which Kafka forgets, and the decisions of operators."""

    async def started_topic_id(self, stream: StreamId) -> str | None: ...
    async def mark_started(self, stream: StreamId, topic_id: str) -> None: ...
    async def accepted(self, stream: StreamId) -> str: ...
    async def consume_acceptance(self, stream: StreamId) -> None: ...
    async def block_decision(self, stream: StreamId, table: str) -> Decision | None: ...
    async def consume_block_decision(self, stream: StreamId, table: str, decision: Decision) -> None: ...


@dataclass(frozen=True, slots=True)
class Outside:
    """Everything outside, in one value."""

    group: Group
    shard: Shard
    locks: Locks
    schemas: Schemas
    holds: Holds
    markers: Markers
