"""One aggregator process put together: members, owners, leases, health, and an orderly end within one time budget."""

from __future__ import annotations

import asyncio
import random
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import structlog

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.admin.server import AdminServer
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.faults.model import Injection, Point
from blockhouse_aggregator.faults.strike import strike
from blockhouse_aggregator.gate.client import GateAddress
from blockhouse_aggregator.gate.server import GateServer
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.kafka.group import DropReason
from blockhouse_aggregator.kafka.member import GroupMember
from blockhouse_aggregator.runtime import adapters
from blockhouse_aggregator.runtime.catalog import REFRESH, UNKNOWN_REFRESH, Catalog
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.declared import DeclaredReplica
from blockhouse_aggregator.runtime.faulty import FaultyGroup
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.hazards import HazardWatch
from blockhouse_aggregator.runtime.health import ReplicaHealth
from blockhouse_aggregator.runtime.leases import Leases
from blockhouse_aggregator.runtime.loadable import check_columns, check_loadable
from blockhouse_aggregator.runtime.owner import StreamOwner
from blockhouse_aggregator.runtime.ownership import OnTheLoop, OwnedStreams
from blockhouse_aggregator.runtime.ports import Group, Outside
from blockhouse_aggregator.runtime.presence import Presence, Suspension
from blockhouse_aggregator.runtime.restarting import Restarting
from blockhouse_aggregator.runtime.rollouts import Rollouts
from blockhouse_aggregator.runtime.storing import Storing
from blockhouse_aggregator.runtime.surroundings import SPARE_UNITS, MetadataRoom, Surroundings
from blockhouse_aggregator.spark.session import SparkApplication

log = structlog.get_logger(__name__)
INSERTS_AT_ONCE = 8
EXIT_OK, EXIT_SPARK_DEAD, EXIT_FATAL = 0, 70, 71


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Aggregator:
    """Runs until told to stop, or until something is lost that only a restart brings back."""

    def __init__(self, config: AggregatorConfig) -> None:
        self.config = config
        self.figures = Figures()
        self.hazards = HazardWatch(config, self.figures)
        self.faults = Faults(enabled=config.faults.enabled, clock=time.monotonic, struck=self._fault_struck)
        self.cluster_errors: dict[str, str] = {}
        self.exit_code = EXIT_OK
        self.ready = False
        self.suspension = Suspension(config.suspend_file)
        self._presence = Presence(self._move)
        self._ending = asyncio.Event()
        self._leaves = False
        self._session = Session(config.zookeeper)
        self._background: set[asyncio.Task[None]] = set()
        self._streams = OwnedStreams(self._owner, self._serve, self._go, self._ending)
        self.owners = self._streams.owners

    async def run(self) -> int:
        """Start, work, end; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end, EXIT_OK, "signal")
        if self.faults.enabled:
            log.warning("faults.enabled", why="faults.enabled is set: this aggregator can be told to fail")
        admin = AdminServer(self.config.admin, self)
        await admin.start()
        key = secrets.token_bytes(32)
        self._application = await asyncio.to_thread(
            SparkApplication, self.config.spark, f"blockhouse-{self.config.replica}"
        )
        self.leases = Leases(self.config, self._application, self._check_spark)
        gate = GateServer(self.config.gate, key, self.leases.accept)
        host, port = await gate.start()
        self.leases.address = GateAddress(host, port, key)
        try:
            await asyncio.gather(self._prepare(), asyncio.to_thread(self._application.warm_up))
            if not self._ending.is_set():
                self._go(self._refresh_catalog())
                self._go(self.health.watch(self._hand_over))
                self._go(self.suspension.watch(self._suspend))
                self._go(self._watch_spark())
                await self._suspend(self.suspension.suspended)
                await self._presence.begin()
                self.ready = True
                log.info("aggregator.ready", replica=self.config.replica)
                await self._ending.wait()
        finally:
            self.ready = False
            await self._finish()
            await gate.stop()
            await admin.stop()
        return self.exit_code

    async def _prepare(self) -> None:
        """Connect to everything; what is away now is waited for, loudly."""
        config = self.config
        await self._patiently("zookeeper", lambda: asyncio.to_thread(self._session.connect))
        loop = asyncio.get_running_loop()
        self.members = {
            c.name: GroupMember(c, config.kafka, config.replica, self._listener(c.name, loop))
            for c in config.kafka.clusters
        }
        shard = adapters.LocalShard(config, self._session)
        locks = adapters.ShardLocks(config, self._session)
        outside = Outside(
            group=self._group(),
            shard=shard,
            locks=locks,
            schemas=adapters.StoredSchemas(self._session),
            holds=adapters.StoredHolds(config, self._session, now_ms),
            markers=adapters.StoredMarkers(config, self._session, now_ms),
        )
        self.catalog = Catalog(outside, check_loadable(config), config.clickhouse.database)
        self.restarting = Restarting(adapters.StoredRestarts(config, self._session, now_ms), self._restart)
        await self._patiently("restarts", self.restarting.start)
        self._rollouts = Rollouts(
            config,
            outside.holds,
            self.catalog,
            DeclaredReplica(config),
            check_columns,
            self._in_flight,
            lambda: self.hazards.partitions,
            self.restarting,
        )
        lifetime = config.quorum.insert_lifetime
        storing = Storing(shard, locks, lifetime=lifetime, now_ms=now_ms, slots=INSERTS_AT_ONCE)
        self.health = ReplicaHealth(shard.unfit, config.handover_after)
        self._queue_lengths = shard.queue_lengths
        self._around = Surroundings(
            config,
            outside,
            self.catalog,
            storing,
            self.figures,
            now_ms,
            self.health.report,
            random.Random(),
            MetadataRoom(config.kafka.offset_metadata_max_units - SPARE_UNITS),
            lambda: len(self.owners),
            self.faults,
        )
        await self._patiently("catalog", self.catalog.start)
        for cluster in config.kafka.clusters:
            self._go(self._check_cluster(ClusterFacts(cluster), cluster.name))

    def _group(self) -> Group:
        groups = adapters.KafkaGroups(self.config, self.members)
        if not self.faults.enabled:
            return groups

        async def rejoin(cluster: str) -> None:
            await asyncio.wrap_future(self.members[cluster].rejoin())

        return FaultyGroup(groups, self.faults, rejoin)

    def _fault_struck(self, injection: Injection, stream: str, table: str) -> None:
        self.figures.faults.labels(injection.point, injection.action).inc()
        log.warning("fault.injected", **injection.model_dump(mode="json"), stream=stream, table=table)

    async def _patiently(self, what: str, action: Callable[[], Awaitable[None]]) -> None:
        while not self._ending.is_set():
            try:
                await action()
                return
            except Retryable as error:
                log.warning("start.waits", what=what, error=str(error))
                await self._pause(max(1.0, error.after))

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._ending.wait(), seconds)
        except TimeoutError:
            return

    # --- streams --------------------------------------------------------------------------------------------

    def _owner(self, stream: StreamId, epoch: int, on_rebuild: Callable[[str], None]) -> StreamOwner:
        return StreamOwner(stream, epoch, self._around, on_rebuild)

    async def _serve(self, owner: StreamOwner) -> None:
        await self.leases.serve(owner)

    def _listener(self, cluster: str, loop: asyncio.AbstractEventLoop) -> OnTheLoop:
        return OnTheLoop(
            loop,
            assigned=self._streams.assigned,
            settle=self._streams.settle,
            dropped=self._dropped,
            failed=lambda error: self._cluster_failed(cluster, error),
            recovered=lambda: self._cluster_recovered(cluster),
            before_drop=lambda stream: strike(self.faults.take(Point.ON_REVOKE, str(stream))),
        )

    def _dropped(self, stream: StreamId, epoch: int, reason: DropReason) -> None:
        if reason == "rejoin":
            self.figures.rejoins.inc()
        self._streams.dropped(stream, epoch, reason)

    def rollouts(self) -> Rollouts:
        """What rollouts may ask. Raises Retryable while the aggregator starts."""
        if not hasattr(self, "_rollouts"):
            raise Retryable("the aggregator is still starting", after=1.0)
        return self._rollouts

    def _in_flight(self, table: str) -> bool:
        states = [owner.state for owner in self.owners.values() if owner.state is not None]
        return any(self.catalog.name(t.table) == table for state in states for t in state.in_flight)

    def _cluster_failed(self, cluster: str, error: BlockhouseError) -> None:
        log.error("kafka.failed", cluster=cluster, error=str(error))
        self.cluster_errors[cluster] = str(error)
        if isinstance(error, Permanent) and error.reason in ("InstanceFenced", "ClientFatal", "Crashed"):
            self.end(EXIT_FATAL, error.reason)

    def _cluster_recovered(self, cluster: str) -> None:
        log.info("kafka.recovered", cluster=cluster)
        self.cluster_errors.pop(cluster, None)

    async def _hand_over(self, away: bool) -> None:
        log.warning("replica.hands_over" if away else "replica.takes_back", why=self.health.unfit)
        await self._presence.keep_away("replica", away)

    async def _suspend(self, suspended: bool) -> None:
        await self._presence.keep_away("suspended", suspended)

    async def _move(self, present: bool) -> None:
        for member in self.members.values():
            await asyncio.wrap_future(member.join() if present else member.leave())

    # --- background -----------------------------------------------------------------------------------------

    def _go(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("aggregator.failed", error=repr(error), exc_info=error)
            self.end(EXIT_FATAL, "InternalError")

    async def _refresh_catalog(self) -> None:
        since = 0.0
        while True:
            await asyncio.sleep(UNKNOWN_REFRESH)
            since += UNKNOWN_REFRESH
            try:
                await self.catalog.refresh_holds()
                await self.restarting.refresh()
                if since >= REFRESH:
                    since = 0.0
                    await self.catalog.refresh()
                    for table, entries in (await self._queue_lengths()).items():
                        self.figures.replication_queue.labels(table).set(entries)
                elif any(known.held for known in self.catalog.tables):
                    await self.catalog.refresh_unknown()
            except Retryable as error:
                log.warning("catalog.waits", error=str(error))
            self.hazards.look(self.catalog.tables)

    async def _check_cluster(self, facts: ClusterFacts, cluster: str) -> None:
        """Intents are as durable as __consumer_offsets: say so, or refuse, when that is weak."""
        try:
            found = await asyncio.to_thread(facts.offsets_topic)
            topic = await asyncio.to_thread(facts.topic, self.config.kafka.topic)
        except BlockhouseError as error:
            log.warning("kafka.not_checked", cluster=cluster, error=str(error))
            return
        self.hazards.partitions = max(self.hazards.partitions, topic.partitions)
        if not found.durable:
            log.warning("kafka.offsets_topic_weak", cluster=cluster, warning=found.warning)
            if self.config.kafka.weak_offsets_topic == "refuse":
                self.end(EXIT_FATAL, "WeakOffsetsTopic")

    def _check_spark(self) -> None:
        if not self._application.alive:
            self.end(EXIT_SPARK_DEAD, "the Spark JVM is gone")

    async def _watch_spark(self) -> None:
        while True:
            await asyncio.sleep(2.0)
            self._check_spark()

    # --- the end --------------------------------------------------------------------------------------------

    def end(self, code: int, why: str) -> None:
        """Begin to end. Only the first call counts."""
        if not self._ending.is_set():
            log.info("aggregator.ends", why=why, code=code)
            self.exit_code = code
            self._ending.set()

    def _restart(self, why: str) -> None:
        """End, and let others have the streams meanwhile: Spark takes longer to start than anybody should wait."""
        self._leaves = True
        self.end(EXIT_OK, why)

    async def _finish(self) -> None:
        """One budget for everything: finish inserts, record them, close. What is left is a replay for the next."""
        deadline = loop_time() + self.config.shutdown_budget
        members: Mapping[str, GroupMember] = getattr(self, "members", {})
        await asyncio.gather(*(self._give_up(cluster, member, deadline) for cluster, member in members.items()))
        for task in tuple(self._background):
            task.cancel()
        await asyncio.to_thread(self._session.close)
        await asyncio.to_thread(self._application.stop)

    async def _give_up(self, cluster: str, member: GroupMember, deadline: float) -> None:
        """Each cluster by itself: its next owners need not wait for the inserts of another cluster's streams."""
        await self._streams.drain(cluster, deadline, lambda: self.exit_code == EXIT_OK)
        await asyncio.to_thread(member.close, self._leaves)
