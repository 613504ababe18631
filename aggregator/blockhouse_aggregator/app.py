"""One aggregator process: it starts its parts, watches them, and ends in order within one time budget."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.contract.notices import StartWait
from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse.gate.client import GateAddress
from blockhouse.spark.session import SparkNotStarted
from blockhouse.streams import StreamId
from blockhouse_aggregator.admin.server import AdminServer
from blockhouse_aggregator.assembly import Hooks, Parts, assemble, now_ms
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.faults.model import Injection, Point
from blockhouse_aggregator.faults.strike import strike
from blockhouse_aggregator.gate.server import StreamGate
from blockhouse_aggregator.kafka.group import DropReason
from blockhouse_aggregator.kafka.member import GroupMember
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.process.acceptances import Acceptances
from blockhouse_aggregator.runtime.process.cluster_checks import ClusterChecks
from blockhouse_aggregator.runtime.process.configured_files import ConfiguredFiles
from blockhouse_aggregator.runtime.process.draining import Draining
from blockhouse_aggregator.runtime.process.lag_watch import LagWatch
from blockhouse_aggregator.runtime.process.membership import Membership, Suspension
from blockhouse_aggregator.runtime.process.ownership import OnTheLoop, OwnedStreams
from blockhouse_aggregator.runtime.process.start import Start
from blockhouse_aggregator.runtime.stream.owner import StreamOwner
from blockhouse_aggregator.runtime.stream.ownership_history import OwnershipHistory
from blockhouse_aggregator.runtime.stream.task_leases import Leases
from blockhouse_aggregator.runtime.tables.catalog import REFRESH, UNKNOWN_REFRESH, Catalog
from blockhouse_aggregator.runtime.tables.hazards import HazardWatch
from blockhouse_aggregator.runtime.tables.restarts import RestartRequests
from blockhouse_aggregator.runtime.tables.schema_rollouts import SchemaRollouts
from blockhouse_aggregator.spark.application import StreamApplication

log = structlog.get_logger(__name__)
EXIT_OK, EXIT_SPARK_DEAD, EXIT_FATAL, EXIT_DEFECT = 0, 70, 71, 72


class Aggregator:
    """Runs until a signal ends it, or until something is lost that only a restart can recover."""

    def __init__(self, config: AggregatorConfig) -> None:
        self.config = config
        self.figures = Figures()
        self.hazards = HazardWatch(config, self.figures)
        self.faults = Faults(enabled=config.faults.enabled, clock=time.monotonic, struck=self._fault_struck)
        self.cluster_errors: dict[str, str] = {}
        self.history = OwnershipHistory(now_ms)
        self.exit_code = EXIT_OK
        self.ready = False
        self.suspension = Suspension(config.suspend_file)
        self._files = ConfiguredFiles(config)
        self._clusters = ClusterChecks(config, self.hazards, lambda why: self.end(EXIT_FATAL, why))
        self._membership = Membership(self._move)
        self._ending = asyncio.Event()
        self._start = Start(self._ending, now_ms)
        self._leaves = False
        self._session = Session(config.zookeeper)
        self._background: set[asyncio.Task[None]] = set()
        self._parts: Parts | None = None
        """Built when ZooKeeper answers."""
        self._application: StreamApplication | None = None
        self.leases: Leases | None = None
        self._streams = OwnedStreams(self._owner, self._serve, self._go, self._ending)
        self.owners = self._streams.owners

    async def run(self) -> int:
        """Start, work, end; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end, EXIT_OK, "signal")
        admin = AdminServer(self.config.admin, self)
        await admin.start()
        key = secrets.token_bytes(32)
        try:
            name = f"blockhouse-{self.config.replica}"
            application = self._application = await asyncio.to_thread(StreamApplication, self.config.spark, name)
        except SparkNotStarted:
            await admin.stop()
            if self._ending.is_set():  # what ended this process may have ended the JVM too
                return self.exit_code
            raise
        leases = self.leases = Leases(self.config, application, self._check_spark, self._spark_broken)
        gate = StreamGate(self.config.gate, key, leases.accept)
        leases.open(GateAddress(*await gate.start(), key))
        try:
            parts, _ = await asyncio.gather(self._prepare(), self._warm_up(application))
            if parts is not None and not self._ending.is_set():
                self._go(self._refresh_catalog(parts))
                self._go(parts.health.watch(self._hand_over))
                self._go(self.suspension.watch(self._suspend))
                self._go(self._files.watch(self._miss_files))
                self._go(parts.draining.watch(self._drain))
                for loop_of_lag in parts.lag.loops(parts.members):
                    self._go(loop_of_lag)
                self._go(self._watch_spark())
                await self._begin(parts)
                self.ready = True
                log.info("aggregator.ready", replica=self.config.replica)
                await self._ending.wait()
        finally:
            self.ready = False
            await self._finish(application)
            await gate.stop()
            await admin.stop()
        return self.exit_code

    @property
    def catalog(self) -> Catalog | None:
        """The tables; None before ZooKeeper has answered."""
        return self._parts.catalog if self._parts is not None else None

    @property
    def restarting(self) -> RestartRequests | None:
        """Demands to restart; None before ZooKeeper has answered."""
        return self._parts.restarting if self._parts is not None else None

    @property
    def lag(self) -> LagWatch | None:
        """How far its streams are behind; None before ZooKeeper has answered."""
        return self._parts.lag if self._parts is not None else None

    @property
    def waits(self) -> StartWait | None:
        """The part of its start that is not over; None when none is."""
        return self._start.waits

    @property
    def partitions(self) -> Mapping[str, int]:
        """By Kafka cluster: how many partitions the topic has, where that is known."""
        return self._clusters.partitions

    @property
    def why_out(self) -> str:
        """Why it stays out of the consumer groups; empty while it does not."""
        if self._parts is None:
            return self._membership.why_out({"files": self._files.problem})
        replica, drained = self._parts.health.problem, self._parts.draining.problem
        return self._membership.why_out({"replica": replica, "files": self._files.problem, "drained": drained})

    @property
    def why_unfit(self) -> str:
        """Why its ClickHouse replica takes no rows; empty while it does, and before ZooKeeper has answered."""
        return self._parts.health.problem if self._parts is not None else ""

    async def _prepare(self) -> Parts | None:
        """Connect to everything; what is unavailable is waited for, loudly. None when the process ends meanwhile."""
        await self._start.patiently("zookeeper", lambda: asyncio.to_thread(self._session.connect))
        if self._ending.is_set():
            return None
        loop = asyncio.get_running_loop()
        hooks = Hooks(
            listener=lambda cluster: self._listener(cluster, loop),
            restart=self._restart,
            too_many_errors=lambda: self.end(EXIT_DEFECT, "too many internal errors"),
            in_flight=self._in_flight,
            owners=self.owners,
            cluster_errors=self.cluster_errors,
            history=self.history,
        )
        parts = self._parts = assemble(self.config, self._session, self.figures, self.hazards, self.faults, hooks)
        await self._start.patiently("restarts", parts.restarting.start)
        await self._start.patiently("drain", parts.draining.start)
        await self._start.patiently("catalog", parts.catalog.start)
        for cluster, facts in parts.cluster_facts.items():
            self._go(self._clusters.watch(facts, cluster))
        return parts

    def _fault_struck(self, injection: Injection, stream: str, table: str) -> None:
        self.figures.faults.labels(injection.point, injection.action).inc()
        log.warning("fault.injected", **injection.model_dump(mode="json"), stream=stream, table=table)

    # --- streams --------------------------------------------------------------------------------------------

    def _owner(self, stream: StreamId, epoch: int, on_rebuild: Callable[[str], None]) -> StreamOwner:
        assert self._parts is not None, "a stream is assigned by a member, which is one of the parts"
        return StreamOwner(stream, epoch, self._parts.context, on_rebuild)

    async def _serve(self, owner: StreamOwner) -> None:
        assert self.leases is not None, "leases are there before members join"
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

    def rollouts(self) -> SchemaRollouts:
        """What rollouts may ask. Raises Retryable while the aggregator starts."""
        return self._started().rollouts

    def draining(self) -> Draining:
        """Whether people have drained it. Raises Retryable while it starts."""
        return self._started().draining

    def acceptances(self) -> Acceptances:
        """Through which people accept stops of its streams. Raises Retryable while it starts."""
        return self._started().acceptances

    def _started(self) -> Parts:
        if self._parts is None:
            raise Retryable("the aggregator is still starting", after=1.0)
        return self._parts

    def _in_flight(self, table: str) -> bool:
        catalog = self.catalog
        states = [owner.state for owner in self.owners.values() if owner.state is not None]
        return catalog is not None and any(catalog.name(t.table) == table for state in states for t in state.in_flight)

    def _cluster_failed(self, cluster: str, error: BlockhouseError) -> None:
        log.error("kafka.failed", cluster=cluster, error=str(error))
        self.cluster_errors[cluster] = str(error)
        if isinstance(error, Permanent) and error.reason in ("InstanceFenced", "ClientFatal", "Crashed"):
            self.end(EXIT_FATAL, error.reason)

    def _cluster_recovered(self, cluster: str) -> None:
        log.info("kafka.recovered", cluster=cluster)
        self.cluster_errors.pop(cluster, None)

    async def _hand_over(self, unfit: bool) -> None:
        why = self._parts.health.unfit if self._parts is not None else ""
        log.warning("replica.hands_over" if unfit else "replica.takes_back", why=why)
        await self._membership.stay_out("replica", unfit)

    async def _begin(self, parts: Parts) -> None:
        """Join the groups, unless people have decided otherwise before this process was started."""
        await self._suspend(self.suspension.suspended)
        await self._membership.stay_out("drained", parts.draining.asked is not None)
        await self._membership.begin()

    async def _suspend(self, suspended: bool) -> None:
        await self._membership.stay_out("suspended", suspended)

    async def _drain(self, drained: bool) -> None:
        """What can be finished is: the next owners have that much less to replay."""
        if drained:
            await self._streams.finish(loop_time() + self.config.shutdown_budget)
        await self._membership.stay_out("drained", drained)

    async def _miss_files(self, missing: bool) -> None:
        if missing:
            log.error("files.unreadable", error=self._files.problem)
        else:
            log.info("files.readable")
        await self._membership.stay_out("files", missing)

    async def _move(self, present: bool) -> None:
        for member in self._parts.members.values() if self._parts is not None else ():
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
            log.error("aggregator.failed", error=repr(error), exc_info=not isinstance(error, BlockhouseError) and error)
            self.end(EXIT_FATAL, "InternalError")

    async def _refresh_catalog(self, parts: Parts) -> None:
        since = 0.0
        while True:
            await asyncio.sleep(UNKNOWN_REFRESH)
            since += UNKNOWN_REFRESH
            try:
                await parts.catalog.refresh_pauses()
                await parts.restarting.refresh()
                if since >= REFRESH:
                    since = 0.0
                    await parts.catalog.refresh()
                    await parts.replication.look({known.history.name for known in parts.catalog.tables})
                elif any(known.unavailable for known in parts.catalog.tables):
                    await parts.catalog.refresh_unknown()
            except Retryable as error:
                log.warning("catalog.waits", error=str(error))
            self.hazards.look(parts.catalog.tables)

    def _check_spark(self) -> None:
        if self._application is not None and not self._application.alive:
            self.end(EXIT_SPARK_DEAD, "the Spark JVM is gone")

    async def _warm_up(self, application: StreamApplication) -> None:
        try:
            await asyncio.to_thread(application.warm_up)
        except SparkNotStarted as error:
            if not self._ending.is_set():  # what ended this process may have ended the JVM too
                self._spark_broken(str(error))

    def _spark_broken(self, cause: str) -> None:
        """End, and let others have the streams at once: the next start may fare no better."""
        log.error("spark.broken", error=cause)
        self._leaves = True
        self.end(EXIT_SPARK_DEAD, "Spark runs no task any more")

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
            self._membership.end()
            self._ending.set()

    def _restart(self, why: str) -> None:
        """End, and let others have the streams meanwhile: Spark takes longer to start than a stream should wait."""
        self._leaves = True
        self.end(EXIT_OK, why)

    async def _finish(self, application: StreamApplication) -> None:
        """One budget for all: finish inserts, record them, close. What is left is a replay for the next owner."""
        deadline = loop_time() + self.config.shutdown_budget
        members: Mapping[str, GroupMember] = self._parts.members if self._parts is not None else {}
        await asyncio.gather(*(self._release(cluster, member, deadline) for cluster, member in members.items()))
        for task in tuple(self._background):
            task.cancel()
        await asyncio.to_thread(self._session.close)
        await asyncio.to_thread(application.stop)

    async def _release(self, cluster: str, member: GroupMember, deadline: float) -> None:
        """Each cluster by itself: its next owners need not wait for the inserts of another cluster's streams."""
        await self._streams.drain(cluster, deadline, lambda: self.exit_code == EXIT_OK)
        await asyncio.to_thread(member.close, self._leaves)
