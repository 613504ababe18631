"""The real clients behind `ports`: each blocking call runs in a thread of its kind, so that no kind delays another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import cast

import structlog

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import Blocked
from blockhouse.metadata.model import Metadata
from blockhouse.schema.model import Revision, TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.routing import Router
from blockhouse_aggregator.coordination.drains import Drain, ReplicaDrain
from blockhouse_aggregator.coordination.locks import TableLock, TableLocks
from blockhouse_aggregator.coordination.markers import (
    Claim,
    Decision,
    Decisions,
    StreamMarker,
    StreamMarkers,
    block_subject,
    stream_subject,
)
from blockhouse_aggregator.coordination.pauses import Pause, TablePauses
from blockhouse_aggregator.coordination.restarts import RestartDemand, RestartDemands
from blockhouse_aggregator.coordination.schema_store import RevisionConflict, SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.kafka.fetch import StreamReader, reaches
from blockhouse_aggregator.kafka.log_ends import Ends, LogEnds
from blockhouse_aggregator.kafka.member import GroupMember
from blockhouse_aggregator.protocol.commits import CommitOutcome, Refused
from blockhouse_aggregator.runtime.ports import StreamFacts, TableCount
from blockhouse_aggregator.runtime.shared_question import SharedQuestion
from blockhouse_aggregator.runtime.stream.survey import Reader, count_messages
from blockhouse_aggregator.runtime.threads import Threads

log = structlog.get_logger(__name__)
RETRY_PAUSE = 0.1
LOCK_THREADS = 64
MARKER_THREADS = 8
REACHES_SECONDS = 10.0
OTHER_TOPIC, OTHER_OWNER = "StartedOnOtherTopic", "StartedByOtherOwner"


class KafkaGroups:
    """`ports.Group` over one member per cluster."""

    def __init__(self, config: AggregatorConfig, members: Mapping[str, GroupMember]) -> None:
        self._members = members
        self._facts = {cluster.name: ClusterFacts(cluster) for cluster in config.kafka.clusters}
        self._clusters = {cluster.name: cluster for cluster in config.kafka.clusters}
        self._database = config.clickhouse.database
        self._threads = Threads("kafka-facts", max(2, len(members)))
        self._identity = SharedQuestion(self._ask_topic_id)

    async def commit(self, stream: StreamId, epoch: int, offset: int, metadata: str) -> CommitOutcome:
        """A refusal that leaves the very same commit possible (a rebalance is under way) is waited out here."""
        while True:
            future = self._members[stream.cluster].commit(stream, epoch, offset, metadata)
            outcome = await asyncio.wrap_future(future)
            if not (isinstance(outcome, Refused) and outcome.retry):
                return outcome
            await asyncio.sleep(RETRY_PAUSE)

    async def facts(self, stream: StreamId, epoch: int) -> StreamFacts:
        committed = await asyncio.wrap_future(self._members[stream.cluster].committed(stream, epoch))
        cluster = self._facts[stream.cluster]
        topic = await self._threads.run(cluster.topic, stream.topic)
        bounds = await self._threads.run(cluster.bounds, stream)
        return StreamFacts(
            offset=committed.offset,
            metadata=committed.metadata or "",
            log_begin=bounds.begin,
            log_end=bounds.end,
            topic_id=topic.topic_id,
            compacted=topic.compacted,
            leader_epoch=bounds.leader_epoch,
        )

    async def topic_id(self, stream: StreamId, max_age: float = 0.0) -> str:
        """One request serves all streams of the topic that ask at once."""
        return await self._identity.ask((stream.cluster, stream.topic), max_age)

    async def _ask_topic_id(self, topic: tuple[str, str]) -> str:
        cluster, name = topic
        return await self._threads.run(self._facts[cluster].topic_id, name)

    async def reaches(self, stream: StreamId, position: int, leader_epoch: int) -> bool:
        """Whether the log still reaches the position in that epoch."""
        cluster = self._clusters[stream.cluster]
        return await self._threads.run(reaches, cluster, stream, position, leader_epoch, REACHES_SECONDS)

    async def retention(self, stream: StreamId) -> float | None:
        """Seconds after which the brokers delete a message; None: never."""
        topic = await self._threads.run(self._facts[stream.cluster].topic, stream.topic)
        return None if topic.retention_ms is None else topic.retention_ms / 1000

    async def offset_at(self, stream: StreamId, timestamp_ms: int) -> int:
        return await self._threads.run(self._facts[stream.cluster].offset_at, stream, timestamp_ms)

    async def survey(
        self, stream: StreamId, start: int, stop: int, ranges: Mapping[str, tuple[int, int]]
    ) -> Mapping[str, TableCount]:
        """What the log holds of each table in [start, stop), for metadata of another aggregator."""

        def look() -> Mapping[str, TableCount]:
            with StreamReader(self._clusters[stream.cluster], stream) as reader:
                reader.seek(start)
                return count_messages(cast(Reader, reader), Router(self._database), ranges, start, stop)

        return await self._threads.run(look)

    def close(self) -> None:
        self._threads.close()


class BrokerEnds:
    """`ports.LogEnds` with a connection and a thread for each cluster, which only its own questions wait for."""

    def __init__(self, config: AggregatorConfig) -> None:
        self._ends = {cluster.name: LogEnds(cluster) for cluster in config.kafka.clusters}
        self._threads = {name: Threads(f"log-ends-{name}", 1) for name in self._ends}

    async def latest(self, cluster: str, streams: Collection[StreamId]) -> Mapping[StreamId, Ends]:
        return await self._threads[cluster].run(self._ends[cluster].latest, streams)

    async def at(self, cluster: str, streams: Collection[StreamId], timestamp_ms: int) -> Mapping[StreamId, int]:
        return await self._threads[cluster].run(self._ends[cluster].at, streams, timestamp_ms)


class ShardLocks:
    """`ports.Locks` over ZooKeeper."""

    def __init__(self, config: AggregatorConfig, session: Session) -> None:
        self._locks = TableLocks(session, config.shard, holder=config.replica)
        self._threads = Threads("locks", LOCK_THREADS)

    async def acquire(self, table: str, timeout: float, table_path: str | None = None) -> TableLock | None:
        return await self._threads.run(self._locks.acquire, table, timeout, table_path)

    async def release(self, lock: TableLock) -> None:
        await self._threads.run(self._locks.release, lock)

    def close(self) -> None:
        self._threads.close()


class StoredSchemas:
    """`ports.Schemas` over ZooKeeper."""

    def __init__(self, session: Session) -> None:
        self._store = SchemaStore(session)
        self._threads = Threads("schemas", 1)

    async def identity(self) -> str:
        return await self._threads.run(self._store.identity)

    async def all(self) -> Mapping[str, TableHistory]:
        histories = await self._threads.run(self._store.all)
        return {history.name: history for history in histories}

    async def ensure_id(self, table: str) -> TableHistory:
        return await self._threads.run(self._store.ensure_id, table)

    async def append(self, table: str, known_revisions: int, revision: Revision) -> TableHistory:
        """Append, or take what another process appended first: every replica sees the same columns."""
        try:
            return await self._threads.run(self._store.append, table, known_revisions, revision)
        except RevisionConflict as conflict:
            return conflict.history

    def close(self) -> None:
        self._threads.close()


class StoredPauses:
    """`ports.Pauses` over ZooKeeper."""

    def __init__(self, config: AggregatorConfig, session: Session, now_ms: Callable[[], int]) -> None:
        self._pauses = TablePauses(session, config.shard)
        self._now_ms = now_ms
        self._threads = Threads("pauses", 1)

    async def all(self) -> Mapping[str, Pause]:
        return await self._threads.run(self._pauses.all)

    async def put(self, table: str, rollout: str) -> Pause:
        return await self._threads.run(self._pauses.put, table, Pause(rollout=rollout, since_ms=self._now_ms()))

    async def remove(self, table: str, rollout: str) -> bool:
        return await self._threads.run(self._pauses.remove, table, rollout)

    def close(self) -> None:
        self._threads.close()


class StoredRestarts:
    """`ports.Restarts` over ZooKeeper."""

    def __init__(self, config: AggregatorConfig, session: Session, now_ms: Callable[[], int]) -> None:
        self._demands = RestartDemands(session, config.shard)
        self._now_ms = now_ms
        self._threads = Threads("restarts", 1)

    async def latest(self) -> RestartDemand:
        return await self._threads.run(self._demands.latest)

    async def add(self, rollout: str) -> RestartDemand:
        return await self._threads.run(self._demands.add, rollout, self._now_ms())


class StoredDrain:
    """`ports.Drains` over ZooKeeper."""

    def __init__(self, config: AggregatorConfig, session: Session, now_ms: Callable[[], int]) -> None:
        self._drain = ReplicaDrain(session, config.shard, config.replica)
        self._now_ms = now_ms
        self._threads = Threads("drain", 1)

    async def get(self) -> Drain | None:
        return await self._threads.run(self._drain.get)

    async def put(self, by: str, why: str) -> Drain:
        return await self._threads.run(self._drain.put, Drain(by=by, why=why, since_ms=self._now_ms()))

    async def remove(self) -> bool:
        return await self._threads.run(self._drain.remove)


class StoredMarkers:
    """`ports.Markers` over ZooKeeper."""

    def __init__(self, config: AggregatorConfig, session: Session, now_ms: Callable[[], int]) -> None:
        self._markers = StreamMarkers(session)
        self._decisions = Decisions(session)
        self._replica = config.replica
        self._now_ms = now_ms
        self._threads = Threads("markers", MARKER_THREADS)

    async def marker(self, stream: StreamId) -> StreamMarker | None:
        return await self._threads.run(self._markers.get, stream)

    async def claim_restart(self, stream: StreamId, seen: StreamMarker | None, owner: str, accepted: str) -> None:
        await self._threads.run(self._markers.claim, stream, seen, owner, accepted)

    async def mark_started(
        self, stream: StreamId, metadata: Metadata, history: str, *, afresh: bool, claimed_by: str
    ) -> None:
        """After the stream's first commit. `afresh`: an operator let it begin again, perhaps at lower numbers, or of
        another topic of the same name: what an older marker states is over."""
        new = StreamMarker(
            topic_id=metadata.topic_id,
            started_ms=self._now_ms(),
            replica=self._replica,
            seq=metadata.seq,
            position=metadata.position,
            history=history,
            owner=claimed_by,
        )
        if afresh:
            new = new.model_copy(update={"former": ("",)})  # unless there is a marker to name them
        found = await self._threads.run(self._markers.ensure, stream, new)
        if not afresh and found.topic_id != new.topic_id and found.topic_id and new.topic_id:
            # We were frozen after our first commit, and another owner has started it on a topic made since.
            text = f"{stream}: it was started as one of topic id {found.topic_id} meanwhile, not of {new.topic_id}"
            raise Blocked(text, reason=OTHER_TOPIC)
        if claimed_by and found.owner != claimed_by:
            # Two owners in a row were let begin afresh: only of the one that marks it blocks may be stored.
            raise Blocked(f"{stream}: {found.owner} has begun it meanwhile", reason=OTHER_OWNER)
        if found.topic_id != new.topic_id or (afresh and found != new):
            await self._threads.run(self._markers.replace, stream, found, found.followed_by(new))

    async def prove(self, stream: StreamId, claim: Claim, lock: TableLock) -> None:
        await self._threads.run(self._markers.prove, stream, claim, *lock.nodes)

    async def acceptance(self, stream: StreamId) -> Decision | None:
        return await self._threads.run(self._decisions.get, stream_subject(stream))

    async def accept(self, stream: StreamId, decision: Decision) -> None:
        await self._threads.run(self._decisions.put, stream_subject(stream), decision)

    async def consume_acceptance(self, stream: StreamId) -> None:
        decision = await self.acceptance(stream)
        if decision is not None:
            await self._threads.run(self._decisions.consume, stream_subject(stream), decision)

    async def block_decision(self, stream: StreamId, table: str) -> Decision | None:
        return await self._threads.run(self._decisions.get, block_subject(stream, table))

    async def consume_block_decision(self, stream: StreamId, table: str, decision: Decision) -> None:
        await self._threads.run(self._decisions.consume, block_subject(stream, table), decision)

    def close(self) -> None:
        self._threads.close()
