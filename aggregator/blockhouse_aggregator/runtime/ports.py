"""What the driver needs of servers, as small asynchronous interfaces.

The adapters in `adapters.py` put the real clients behind them, the simulation its own. Every method raises
blockhouse.errors (Retryable: try again later; Permanent, Blocked: see there) and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from blockhouse.metadata.model import Metadata
from blockhouse.schema.model import Revision, TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.collecting import Message
from blockhouse_aggregator.clickhouse.presence import Origin, StoredRows
from blockhouse_aggregator.clickhouse.quorum import QuorumSnapshot
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.coordination.drains import Drain
from blockhouse_aggregator.coordination.markers import Claim, Decision, StreamMarker
from blockhouse_aggregator.coordination.pauses import Pause
from blockhouse_aggregator.coordination.restarts import RestartDemand
from blockhouse_aggregator.kafka.log_ends import Ends
from blockhouse_aggregator.protocol.commits import CommitOutcome


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What Kafka holds of a stream when it is assigned; see `protocol.takeover.Facts`."""

    offset: int | None
    metadata: str
    log_begin: int
    log_end: int
    topic_id: str
    compacted: bool
    leader_epoch: int = -1


@dataclass(slots=True)
class TableCount:
    """`protocol.foreign.Surveyed`, by table name."""

    stored: int = 0
    inside: int = 0
    beyond: int = 0
    first_beyond: int | None = None
    oldest_ms: int | None = None

    def add(self, message: Message, begin: int, end: int) -> None:
        """One message more, of a table whose committed range is [begin, end]."""
        offset = message.offset()
        if offset < begin:
            self.stored += 1
        elif offset <= end:
            self.inside += 1
            stamp = message.timestamp()[1]
            self.oldest_ms = stamp if self.oldest_ms is None else min(self.oldest_ms, stamp)
        else:
            self.beyond += 1
            if self.first_beyond is None:
                self.first_beyond = offset


class Group(Protocol):
    """The consumer groups of all clusters."""

    async def commit(self, stream: StreamId, epoch: int, offset: int, metadata: str) -> CommitOutcome:
        """Commit `offset` with its metadata while the stream is owned in `epoch`; a refusal is an outcome."""
        ...

    async def facts(self, stream: StreamId, epoch: int) -> StreamFacts:
        """What Kafka holds of the stream now. Raises Blocked once `epoch` is over."""
        ...

    async def topic_id(self, stream: StreamId, max_age: float = 0.0) -> str:
        """The id of the stream's topic, asked now or less than `max_age` seconds ago; empty: it has none."""
        ...

    async def reaches(self, stream: StreamId, position: int, leader_epoch: int) -> bool:
        """Whether the log, as it is now, still reaches the position in that epoch. Raises Retryable."""
        ...

    async def retention(self, stream: StreamId) -> float | None:
        """Seconds after which the brokers delete a message of the topic; None: never by time."""
        ...

    async def offset_at(self, stream: StreamId, timestamp_ms: int) -> int:
        """Offset of the first message not older than Unix milliseconds; the log's end where there is none."""
        ...

    async def survey(
        self, stream: StreamId, start: int, stop: int, ranges: Mapping[str, tuple[int, int]]
    ) -> Mapping[str, TableCount]:
        """Count the messages of [start, stop) by table name; `ranges` are each table's committed (begin, end)."""
        ...


class LogEnds(Protocol):
    """Where logs end, by the word of the brokers. Streams whose leader does not answer are left out; when none does,
    Retryable or Permanent is raised."""

    async def latest(self, cluster: str, streams: Collection[StreamId]) -> Mapping[StreamId, Ends]:
        """The ends now."""
        ...

    async def at(self, cluster: str, streams: Collection[StreamId], timestamp_ms: int) -> Mapping[StreamId, int]:
        """The first offset not older than Unix milliseconds; negative where there is none."""
        ...


class Shard(Protocol):
    """The local replica and what ZooKeeper holds of the shard's tables."""

    async def describe(self, table: str) -> ServerTable | None:
        """The table `database.table` as the replica has it now; None: it has none."""
        ...

    async def fingerprints(self) -> Mapping[str, int]:
        """A number for each table that differs when its columns do, or how or where it was created."""
        ...

    async def quorum(self, table: ServerTable) -> QuorumSnapshot:
        """What ZooKeeper holds of the table's quorum now."""
        ...

    async def failed_parts(self, table: ServerTable) -> tuple[str, ...]:
        """Names of the table's parts whose quorum failed, whenever that was."""
        ...

    async def blocks_since(self, table: ServerTable, since_ms: int, *, older_than_ms: int) -> int:
        """How many blocks of all writers the deduplication window has got since Unix milliseconds; more than any window
        holds where the window itself was created at `older_than_ms` or later."""
        ...

    async def altered_since(self, table: ServerTable, since_ms: int) -> bool:
        """Whether any replica's columns may have changed since Unix milliseconds."""
        ...

    async def claimed(self, table: ServerTable, cluster: str, topic: str) -> bool:
        """Claim the table for rows of the cluster that are of `topic` (`streams.incarnation`), with its lock held;
        whether rows that name no topic can only be of this one. Raises Blocked when another pipeline has claimed it and
        nothing would separate its rows from ours."""
        ...

    async def rows_removed(self, table: ServerTable, since_ms: int) -> str:
        """Why rows inserted since Unix milliseconds may have been removed on purpose; empty when nothing is known that
        removes them for good."""
        ...

    async def stored(
        self, table: ServerTable, origin: Origin, begin: int, end: int, failed: Sequence[str] = ()
    ) -> StoredRows:
        """Rows stored of the stream's offsets [begin, end], by their provenance columns. Raises Blocked when rows are
        found that may be another topic's, Retryable when they are in one of the `failed` parts."""
        ...


class Lock(Protocol):
    """A lock that was acquired. `valid` turns False when the session that holds it is lost."""

    @property
    def valid(self) -> bool: ...


class Locks(Protocol):
    """One lock per table of the shard, among all its replicas. `release` takes only what `acquire` gave."""

    async def acquire(self, table: str, timeout: float, table_path: str | None = None) -> Lock | None:
        """Wait for the lock of `database.table`, at most `timeout` seconds; None when it was not free. With
        `table_path`, its node in ZooKeeper, also against pipelines of other roots."""
        ...

    async def release(self, lock: Any) -> None:
        """Release a lock; a lost session has released it already."""
        ...


class Schemas(Protocol):
    """The append-only schema history."""

    async def identity(self) -> str:
        """The history's own random identity, which a history that is set up again does not have."""
        ...

    async def all(self) -> Mapping[str, TableHistory]:
        """Every table's history by `database.table`."""
        ...

    async def ensure_id(self, table: str) -> TableHistory:
        """The table's history, with an id of its own even without a revision."""
        ...

    async def append(self, table: str, known_revisions: int, revision: Revision) -> TableHistory:
        """Append a revision unless there are more than `known_revisions` already; returns what is there."""
        ...


class Pauses(Protocol):
    """Tables of the shard that a rollout pauses."""

    async def all(self) -> Mapping[str, Pause]:
        """Pauses by `database.table`."""
        ...

    async def put(self, table: str, rollout: str) -> Pause:
        """Pause the table for a rollout. Raises Blocked while another rollout does."""
        ...

    async def remove(self, table: str, rollout: str) -> bool:
        """Release the table; False when this rollout did not pause it."""
        ...


class Restarts(Protocol):
    """Demands on the shard's aggregators to restart."""

    async def latest(self) -> RestartDemand:
        """The newest demand; number 0 before the first one."""
        ...

    async def add(self, rollout: str) -> RestartDemand:
        """Demand a restart for a rollout, once however often it is asked."""
        ...


class Drains(Protocol):
    """Whether this replica's aggregator is drained."""

    async def get(self) -> Drain | None:
        """None: it is not."""
        ...

    async def put(self, by: str, why: str) -> Drain:
        """Drain it, by whom and why; an earlier drain counts."""
        ...

    async def remove(self) -> bool:
        """Let it resume; False when it was not drained."""
        ...


class Markers(Protocol):
    """Durable facts about streams which Kafka forgets, and the decisions of operators."""

    async def marker(self, stream: StreamId) -> StreamMarker | None:
        """The stream's marker, None when it was never started. Raises Retryable."""
        ...

    async def claim_restart(self, stream: StreamId, seen: StreamMarker | None, owner: str, accepted: str) -> None:
        """Before the first commit of an owner that a person lets begin afresh, a stop was `accepted`, or that continues
        what such an owner did not mark. An earlier one that lost the stream before it marked it cannot mark it, and so
        insert, any more. Raises Retryable when the marker is not the one that was `seen`: decide the takeover again."""
        ...

    async def mark_started(
        self, stream: StreamId, metadata: Metadata, history: str, *, afresh: bool, claimed_by: str
    ) -> None:
        """After its first commit; `afresh` replaces an older marker, but only the one of `claim_restart` when it was
        `claimed_by` an owner. Raises Retryable, and Blocked when the stream was started meanwhile, by another owner or
        on another topic."""
        ...

    async def prove(self, stream: StreamId, claim: Claim, lock: Any) -> None:
        """Return when an insert under the lock may begin now. Raises Retryable when it may not."""
        ...

    async def acceptance(self, stream: StreamId) -> Decision | None:
        """A stop that a person has accepted and no owner has acted on yet, as `acceptance.py` writes it; None: none."""
        ...

    async def accept(self, stream: StreamId, decision: Decision) -> None:
        """Record an acceptance; it takes the place of an earlier one."""
        ...

    async def consume_acceptance(self, stream: StreamId) -> None:
        """Remove the acceptance: it was for one stop."""
        ...

    async def block_decision(self, stream: StreamId, table: str) -> Decision | None:
        """What an operator has decided about the table's stalled block; None: nothing."""
        ...

    async def consume_block_decision(self, stream: StreamId, table: str, decision: Decision) -> None:
        """Remove exactly this decision: it is carried out."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """All of them in one value."""

    group: Group
    shard: Shard
    locks: Locks
    schemas: Schemas
    pauses: Pauses
    markers: Markers
