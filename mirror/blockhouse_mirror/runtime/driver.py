"""The driver of one mirror: its parts, joined, and its life from the takeover to the end.

It alone writes positions, as the one member of the mirror's group on the target: a driver that was replaced is refused
there, and lets its tasks hear nothing more, so that their grants end (M3).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets

import structlog

from blockhouse.balance.model import NotEnoughRoom
from blockhouse.config.mirror import MirrorConfig
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.gate.client import GateAddress
from blockhouse.gate.server import GateServer
from blockhouse.load.model import LoadSource
from blockhouse_mirror.gate.messages import FROM_TASK, FromDriver, FromTask
from blockhouse_mirror.kafka.bounds import LogBounds
from blockhouse_mirror.kafka.load_topic import LoadTopic
from blockhouse_mirror.kafka.positions import PositionGroup
from blockhouse_mirror.kafka.topic_ids import TopicIds
from blockhouse_mirror.kafka.topics import MirrorTopics
from blockhouse_mirror.runtime.assignment import Assigner
from blockhouse_mirror.runtime.clock import boot_time
from blockhouse_mirror.runtime.discovering import Discovering
from blockhouse_mirror.runtime.grants import Grants
from blockhouse_mirror.runtime.load_keeping import LoadKeeping
from blockhouse_mirror.runtime.mirrored import Mirrored
from blockhouse_mirror.runtime.position_writer import PositionWriter
from blockhouse_mirror.runtime.reports import Reports
from blockhouse_mirror.runtime.tasks import Application, Tasks

log = structlog.get_logger(__name__)
STOP_SECONDS = 15.0
EXIT_OK, EXIT_FAILED, EXIT_FENCED = 0, 71, 73


class Driver:
    """`run` until `end`. On one event loop; what blocks runs in threads."""

    def __init__(self, config: MirrorConfig, application: Application, load: LoadSource) -> None:
        self.mirrored = Mirrored(config)
        self.assigner = Assigner(config, application.slots)
        self.exit_code = EXIT_OK
        self._load = load
        replication = config.target_topics.replication_factor
        store = LoadTopic(config.target, config.load_topic, replication) if config.load_topic else None
        self._keeping = LoadKeeping(self.mirrored, self.assigner.history, store)
        self._topics = MirrorTopics(config)
        self._source, target = LogBounds(config.source), LogBounds(config.target)
        self._group = PositionGroup(config.target, config.group)
        self.writer = PositionWriter(self.mirrored, self._group, TopicIds(config.source))
        self.discovering = Discovering(self.mirrored, self._topics, self._group, self._source, target)
        self.reports = Reports(self.mirrored, self.writer.ours, self.discovering.look_now.set)
        self.tasks = Tasks(config, application, epoch=secrets.randbelow(1 << 31), listener=self.reports)
        self._grants = Grants(self.mirrored, self.tasks, self.assigner, self.writer, LogBounds(config.source), target)
        self._key = secrets.token_bytes(32)
        self._gate: GateServer[FromTask, FromDriver] = GateServer(config.gate, self._key, FROM_TASK, self.tasks.accept)
        self._ending = asyncio.Event()
        self._requested = False

    async def run(self) -> int:
        """Mirror until `end` is called; the exit code then. Raises Permanent `CannotListen`."""
        host, port = await self._gate.start()
        self.tasks.open(GateAddress(host, port, self._key))
        background: list[asyncio.Task[None]] = []
        try:
            await self._take_over()
            if not self._ending.is_set():
                parts = (self.discovering.run, self._weigh, self.writer.run, self._grants.run)
                for part in parts:
                    background.append(asyncio.ensure_future(part()))
                    background[-1].add_done_callback(self._over)
                await self._ending.wait()
            self._grants.closing = True
            for each in background[:2]:
                each.cancel()
            await self.tasks.stop(0.0 if self.exit_code else STOP_SECONDS)
            for each in background:
                each.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            if self.exit_code == EXIT_OK:
                await self.writer.write()
                await self._keeping.keep(last=True)
        except BlockhouseError as error:
            self._fail(error)
        finally:
            await self._gate.stop()
            await asyncio.to_thread(self._close)
        return self.exit_code

    def end(self, code: int = EXIT_OK, why: str = "asked to") -> None:
        """Begin to end; only the first call counts."""
        if not self._ending.is_set():
            log.info("mirror.ends", why=why, code=code)
            self.exit_code = code
            self._ending.set()

    def request_rebalance(self) -> None:
        """Make the tasks even at the next look, whatever the cool-down."""
        self._requested = True

    async def _take_over(self) -> None:
        while not self._ending.is_set():
            try:
                found = await self.discovering.take_over()
            except Retryable as error:
                self.mirrored.failed("discovery", error)
                await self._pause(max(1.0, error.after))
                continue
            self.tasks.clusters = (found.source_cluster, found.target_cluster)
            self.writer.proven_at = boot_time()
            await self._keeping.restore(found.source_cluster)
            self.mirrored.worked("discovery")
            return

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        known = isinstance(error, BlockhouseError)
        log.error("mirror.failed", error=repr(error), exc_info=not known and error)
        reason = error.reason if isinstance(error, BlockhouseError) else "InternalError"
        self.end(EXIT_FENCED if reason == "MirrorFenced" else EXIT_FAILED, reason)
        self.exit_code = self.exit_code or EXIT_FAILED

    def _close(self) -> None:
        self._group.close()
        self._topics.close()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)

    # --- load -----------------------------------------------------------------------------------------------

    async def _weigh(self) -> None:
        """Measure, and assign by what was measured; the first assignment waits for nothing."""
        self._assign()
        while not self._ending.is_set():  # a wait that ends as it is cancelled keeps no cancellation
            await self._measure()
            self._assign()
            await self._pause(self.mirrored.config.load.interval)

    async def _measure(self) -> None:
        try:
            sample = await asyncio.to_thread(self._load.sample)
            if sample is not None:
                self.assigner.measured(sample)
                await self._keeping.keep()
            self.mirrored.worked("load")
        except BlockhouseError as error:
            self.mirrored.failed("load", error)
        partitions = self.mirrored.partitions
        bounds = await asyncio.to_thread(self._source.of, [each.key for each in partitions])
        now = boot_time()
        for key, found in bounds.items():
            partition = partitions.get(key)
            if partition is not None:
                partition.lateness.seen(now, found.end)

    def _assign(self) -> None:
        now = boot_time()
        mirrored = [each for each in self.mirrored.partitions if each.stop is None]
        lags = {each.key: each.lateness.seconds(now) for each in mirrored}
        try:
            decision = self.assigner.decide(frozenset(lags), lags, requested=self._requested)
        except NotEnoughRoom as error:
            self.mirrored.failed("assignment", error)
            return
        self._requested = False
        self.mirrored.worked("assignment")
        if decision.causes:
            log.info(
                "mirror.assigned",
                causes=[cause.value for cause in decision.causes],
                tasks=len(decision.assignment),
                partitions=len(mirrored),
                moved=len(decision.moved),
            )
        self.tasks.resize(frozenset(self.assigner.assignment))
