"""What stands where the aggregator's `app` and `assembly` make clients. Each finds its replica by its process."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any
from zlib import crc32

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import Permanent, Retryable
from blockhouse.schema.model import PROVENANCE_COLUMNS
from blockhouse.streams import StreamId
from blockhouse_aggregator.clickhouse.presence import Origin, StoredRows
from blockhouse_aggregator.clickhouse.quorum import UNKNOWN, QuorumSnapshot
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.coordination.restarts import RestartDemand
from blockhouse_aggregator.kafka.facts import Bounds
from blockhouse_aggregator.kafka.log_ends import Ends
from blockhouse_aggregator.runtime.adapters import KafkaGroups
from blockhouse_aggregator.runtime.ports import StreamFacts, TableCount
from blockhouse_aggregator.runtime.shared_question import SharedQuestion
from blockhouse_aggregator.spark.task import LeaseFigures, LeaseSpec
from tests.simulation.clickhouse import Table
from tests.simulation.logs import BAD
from tests.simulation.markers import SimMarkers
from tests.simulation.member import SimMember
from tests.simulation.replica import current
from tests.simulation.worker import Worker
from tests.simulation.world import World
from tests.simulation.zookeeper import SimLocks, SimSchemas, ZkSession


class _Unseen:
    """In place of every metric, without a series: no one reads them here, and they are expensive."""

    def __getattr__(self, name: str) -> _Unseen:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __call__(self, *_: Any, **__: Any) -> _Unseen:
        return self


FIGURES = _Unseen()


class SimApplication:
    """In place of `spark.application.StreamApplication`."""

    def __init__(self, *_: Any) -> None:
        self._node = current()
        self.slots = self._node.world.setting.slots
        self.alive = True

    def warm_up(self) -> None:
        """Workers of a simulated node take no time to start."""

    def run_lease(self, spec: LeaseSpec) -> LeaseFigures:
        node = self._node
        job: asyncio.Future[LeaseFigures] = node.world.loop.create_future()
        worker = Worker(node, spec, job)
        node.workers[worker.process.name] = worker
        node.world.loop.spawn(worker.run(), worker.process)
        return job  # type: ignore[return-value] # the loop waits for it

    def cancel(self, spec: LeaseSpec) -> None:
        for worker in list(self._node.workers.values()):
            if worker.spec == spec:
                self._node.kill_worker(worker)

    def stop(self) -> None:
        for worker in list(self._node.workers.values()):
            self._node.kill_worker(worker)


class SimServer:
    """In place of the admin and gate servers: no client connects from outside."""

    def __init__(self, *_: Any) -> None: ...

    async def start(self) -> tuple[str, int]:
        return "gate", 1

    async def stop(self) -> None: ...


class SimShard:
    """`ports.Shard` over the local server, and what ZooKeeper stores about the tables."""

    def __init__(self, *_: Any) -> None:
        node = self._node = current()
        node.shard_port = self
        self.seen: dict[str, QuorumSnapshot] = {}
        setting = node.world.setting
        self._tables = {
            name: ServerTable(
                database="default",
                name=name.partition(".")[2],
                engine="ReplicatedMergeTree",
                replicated=True,
                zookeeper_path=f"/{name}",
                replica_name=node.name,
                columns=node.histories[name].revisions[0].columns,
                deduplication_window=setting.window,
                deduplication_window_seconds=setting.window_seconds,
                provenance=frozenset(PROVENANCE_COLUMNS),
                materialized_views=(),
                partition_key="tuple()" if setting.split == 1 else "id",
            )
            for name in node.numbers
        }

    async def describe(self, table: str) -> ServerTable | None:
        if not self._node.server.process.running:
            raise Retryable("clickhouse: cannot connect")
        return self.described(table)

    def described(self, table: str) -> ServerTable | None:
        """As the server would describe it now."""
        found = self._tables.get(table)
        there = self._named(table) if found is not None else None
        if found is None or there is None or there.dropped:
            return None
        if there.altered:
            found = replace(found, columns=tuple(c.model_copy(update={"type": "String"}) for c in found.columns))
        return replace(found, zookeeper_path=there.path)

    def _named(self, table: str) -> Table:
        return self._node.shard.tables[self._node.numbers[table]]

    async def fingerprints(self) -> Mapping[str, int]:
        self._node.world.strike("tables compared", self._node.number)
        there = {name: self._named(name) for name in self._tables}
        return {name: crc32(table.path.encode()) for name, table in there.items() if not table.dropped}

    async def queue_lengths(self) -> Mapping[str, int]:
        return {}

    async def lost_parts(self) -> Mapping[str, int]:
        return {}

    async def unfit(self) -> str:
        server = self._node.server
        if not server.process.alive:
            raise Retryable("clickhouse: cannot connect")
        return "" if server.writable else "read-only: all"

    async def quorum(self, table: ServerTable) -> QuorumSnapshot:
        await self._zookeeper()
        found = self._node.shard.at(table.zookeeper_path)
        snapshot = QuorumSnapshot(False, 0)
        if found is not None:
            snapshot = QuorumSnapshot(found.pending is not None, len(found.failed))
        self.seen[table.full_name] = snapshot
        return snapshot

    async def failed_parts(self, table: ServerTable) -> tuple[str, ...]:
        await self._zookeeper()
        found = self._node.shard.at(table.zookeeper_path)
        return () if found is None else tuple(found.failed)

    async def blocks_since(self, table: ServerTable, since_ms: int, *, older_than_ms: int) -> int:
        await self._zookeeper()
        found = self._node.shard.at(table.zookeeper_path)
        if found is None or found.made_ms >= older_than_ms:
            return UNKNOWN
        return sum(made >= since_ms for made in (*found.blocks.values(), *found.failed.values()))

    async def rows_removed(self, table: ServerTable, since_ms: int) -> str:
        since = [at for at in self._named(table.full_name).deletions if at >= since_ms]
        return f"a mutation at {since[0]}" if since else ""

    async def altered_since(self, table: ServerTable, since_ms: int) -> bool:
        await self._zookeeper()
        return self._node.shard.at(table.zookeeper_path) is None

    async def claimed(self, table: ServerTable, cluster: str, topic: str) -> bool:
        await self._zookeeper()
        if self._node.shard.at(table.zookeeper_path) is None:
            raise Retryable(f"zookeeper {table.zookeeper_path}: {table.full_name} was dropped", after=1.0)
        return True

    async def stored(
        self, table: ServerTable, origin: Origin, begin: int, end: int, failed: Sequence[str] = ()
    ) -> StoredRows:
        node = self._node
        found = self._named(table.full_name)
        number = node.stream_number(StreamId(origin.cluster, "", origin.partition))
        work = node.shard.rows_of(node.server, found, number, origin.topic, begin, end, failed)
        return StoredRows(await node.server.call(work, 5.0))

    async def _zookeeper(self) -> None:
        node = self._node
        await asyncio.sleep(2 * node.world.trip(node.zone, 0) + max(0.0, node.hiccup_until - node.world.loop.time()))
        if not node.ensemble.reachable(node.session):
            await asyncio.sleep(3.0)
            raise Retryable("zookeeper: unavailable", after=0.5)

    def close(self) -> None: ...


class SimFacts:
    """In place of `kafka.facts.ClusterFacts`."""

    def __init__(self, config: Any) -> None:
        self._node = current()
        self._cluster = self._node.clusters[config.name]

    def _reached(self) -> None:
        if not self._cluster.up or not self._node.world.linked(self._node.zone, self._cluster.zone):
            raise Retryable(f"cluster {self._cluster.name}: no broker answers", after=0.5)

    def _there(self) -> None:
        if self._cluster.deleted:
            raise Permanent(f"cluster {self._cluster.name}: no such topic", reason="UnknownTopic")

    def topic(self, name: str) -> Any:
        self._reached()
        self._there()
        return SimpleNamespace(
            topic_id=self._cluster.topic_id,
            compacted=False,
            retention_ms=None,
            partitions=len(self._cluster.logs),
        )

    def partitions(self, name: str) -> int:
        self._reached()
        self._there()
        return len(self._cluster.logs)

    def topic_id(self, name: str) -> str:
        self._reached()
        self._there()
        return self._cluster.topic_id

    def bounds(self, stream: StreamId) -> Bounds:
        self._reached()
        self._there()
        content = self._cluster.logs[stream.partition].content
        return Bounds(0, content.end, content.leader_epoch)

    def kinds(self, stream: StreamId, start: int, stop: int) -> list[int]:
        """What the log holds in [start, stop)."""
        self._reached()
        return self._cluster.logs[stream.partition].content.kinds[start:stop]

    def reaches(self, stream: StreamId, position: int, leader_epoch: int) -> bool:
        self._reached()
        return self._cluster.logs[stream.partition].content.reaches(position, leader_epoch)

    def cluster_id(self) -> str:
        self._reached()
        return f"cluster-{self._cluster.name}"

    def offsets_topic(self) -> Any:
        self._reached()
        return SimpleNamespace(durable=True, warning="")


class _SimThreads:
    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self, function: Any, *arguments: Any) -> Any:
        await asyncio.sleep(self._world.random.uniform(0.001, 0.05))
        return function(*arguments)

    def close(self) -> None: ...


class SimGroups(KafkaGroups):
    """The product's, retries and all, over simulated members and facts."""

    def __init__(self, config: AggregatorConfig, members: Mapping[str, Any]) -> None:
        self._members = members
        self._facts: dict[str, Any] = {cluster.name: SimFacts(cluster) for cluster in config.kafka.clusters}
        self._threads: Any = _SimThreads(current().world)
        self._identity = SharedQuestion(self._ask_topic_id)

    async def reaches(self, stream: StreamId, position: int, leader_epoch: int) -> bool:
        facts: SimFacts = self._facts[stream.cluster]
        return bool(await self._threads.run(facts.reaches, stream, position, leader_epoch))

    async def survey(
        self, stream: StreamId, start: int, stop: int, ranges: Mapping[str, tuple[int, int]]
    ) -> Mapping[str, TableCount]:
        """Of the named tables alone."""
        cluster: Any = self._facts[stream.cluster]
        kinds = await self._threads.run(cluster.kinds, stream, start, stop)
        names = current().numbers
        return {
            name: TableCount(inside=sum(kind >= 0 and kind % BAD == names[name] for kind in kinds)) for name in ranges
        }

    async def facts(self, stream: StreamId, epoch: int) -> StreamFacts:
        found = await super().facts(stream, epoch)
        node = current()
        node.world.strike("offset read", node.number)
        return found

    async def commit(self, stream: StreamId, epoch: int, offset: int, metadata: str) -> Any:
        node = current()
        node.world.strike("before commit", node.number)
        result = await super().commit(stream, epoch, offset, metadata)
        node.world.strike("after commit", node.number)
        return result


class SimEnds:
    """In place of `adapters.BrokerEnds`."""

    def __init__(self, config: AggregatorConfig) -> None:
        self._facts = {cluster.name: SimFacts(cluster) for cluster in config.kafka.clusters}

    async def latest(self, cluster: str, streams: Collection[StreamId]) -> Mapping[StreamId, Ends]:
        ends = {stream: self._facts[cluster].bounds(stream).end for stream in streams}
        return {stream: Ends(high=end, stable=end) for stream, end in ends.items()}

    async def at(self, cluster: str, streams: Collection[StreamId], timestamp_ms: int) -> Mapping[StreamId, int]:
        return {stream: self._facts[cluster].bounds(stream).end for stream in streams}


class _SimPauses:
    async def all(self) -> Mapping[str, Any]:
        return {}


class _SimRestarts:
    async def latest(self) -> RestartDemand:
        return RestartDemand()


class _SimDrain:
    async def get(self) -> None:
        return None


def make_session(*_: Any) -> ZkSession:
    node = current()
    node.session = ZkSession(node.ensemble, node.threads, node.zone)
    return node.session


def make_locks(*_: Any) -> SimLocks:
    node = current()
    node.locks = SimLocks(node.world, node.session)
    node.locks.on_hold = lambda: node.world.strike("lock held", node.number)
    node.session.on_check = lambda: node.world.strike("lock checked", node.number)
    node.locks.on_release = lambda table: node.oracle.released(node, table)
    return node.locks


def make_member(config: Any, kafka: Any, instance: str, listener: Any) -> SimMember:
    node = current()
    cluster = node.clusters[config.name]
    member = SimMember(cluster, config, kafka, instance, listener, node.threads, node.driver, node.zone)
    node.members.append(member)
    return member


def now_ms() -> int:
    return int(current().unix() * 1000)


def make_random() -> Random:
    node = current()
    return Random(f"{node.world.setting.seed} {node.driver.name}")


REPLACED: dict[str, Any] = {
    "Session": make_session,
    "local_shard": SimpleNamespace(LocalShard=SimShard),
    "GroupMember": make_member,
    "ClusterFacts": SimFacts,
    "StreamApplication": SimApplication,
    "StreamGate": SimServer,
    "AdminServer": SimServer,
    "Figures": lambda: FIGURES,
    "now_ms": now_ms,
    "random": SimpleNamespace(Random=make_random),
    "check_loadable": lambda _: lambda _history, _server: None,
    "adapters": SimpleNamespace(
        ShardLocks=make_locks,
        KafkaGroups=SimGroups,
        BrokerEnds=SimEnds,
        StoredSchemas=lambda *_: SimSchemas(current().ensemble, current().histories),
        StoredMarkers=lambda *_: SimMarkers(current().session, current().name, now_ms),
        StoredPauses=lambda *_: _SimPauses(),
        StoredRestarts=lambda *_: _SimRestarts(),
        StoredDrain=lambda *_: _SimDrain(),
    ),
}
"""Names of `blockhouse_aggregator.app` and `assembly`, and what stands in for them."""
