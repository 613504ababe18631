"""Leases: one Spark job after another for every stream we own, as many at once as Spark has slots."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import structlog

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError
from blockhouse.gate.client import GateAddress
from blockhouse.spark.causes import cause_of
from blockhouse_aggregator.gate.server import StreamSession
from blockhouse_aggregator.runtime.stream.conversation import Conversation
from blockhouse_aggregator.runtime.stream.failed_leases import FailedLeases
from blockhouse_aggregator.runtime.stream.owner import StreamOwner
from blockhouse_aggregator.runtime.stream.task_troubles import TaskTroubles
from blockhouse_aggregator.runtime.stream.worker_crashes import WorkerCrashes
from blockhouse_aggregator.spark.task import LeaseFigures, LeaseSpec

log = structlog.get_logger(__name__)
SHARED_LEASE = 2.0
"""Seconds of a lease while other streams wait for a slot."""
START_TIMEOUT = 60.0
SILENCE = 180.0
"""Seconds without a word after which a task is hung: longer than any scan, replay or insert may take."""
CANCEL_TIMEOUT = 30.0
PAUSE = 1.0
"""Seconds between a lease that failed and the next one of its stream."""


class Application(Protocol):
    """Runs one lease to its end; blocking."""

    slots: int

    def run_lease(self, spec: LeaseSpec) -> LeaseFigures: ...

    def cancel(self, spec: LeaseSpec) -> None: ...


class Leases:
    """Hands leases to the application and tasks that call back to the owner of their stream.

    `on_dead` is called after a failed job, `on_broken` with the cause when Spark runs no task any more.
    """

    def __init__(
        self,
        config: AggregatorConfig,
        application: Application,
        on_dead: Callable[[], None],
        on_broken: Callable[[str], None],
    ) -> None:
        self._config = config
        self._application = application
        self._on_dead, self._on_broken = on_dead, on_broken
        self._failures = FailedLeases()
        self._slots = asyncio.Semaphore(application.slots)
        self._waiting = 0
        self._numbers = itertools.count(1)
        self._expected: dict[int, tuple[StreamOwner, asyncio.Future[StreamSession]]] = {}
        self._threads = ThreadPoolExecutor(application.slots, thread_name_prefix="lease")
        self._crashes: dict[str, WorkerCrashes] = {}
        self._troubles: dict[str, TaskTroubles] = {}
        self._address: GateAddress | None = None

    def open(self, address: GateAddress) -> None:
        """Tasks call back here. Caller: the aggregator, when its gate listens and before any stream is served."""
        self._address = address

    async def accept(self, session: StreamSession) -> None:
        """A task calls: it is spoken to only when exactly its lease is expected, and only once."""
        hello = session.hello
        expected = self._expected.pop(hello.lease, None)
        if expected is None or (str(expected[0].stream), expected[0].epoch) != (hello.work, hello.epoch):
            log.warning("lease.refused", stream=hello.work, lease=hello.lease, why="not expected, or a second attempt")
            return
        _, arrived = expected
        if not arrived.done():
            arrived.set_result(session)
            await session.gone.wait()

    async def serve(self, owner: StreamOwner) -> None:
        """Lease after lease until the stream is dropped."""
        while not owner.closed.is_set() and not owner.draining.is_set():
            self._waiting += 1
            async with self._slots:
                self._waiting -= 1
                if owner.closed.is_set() or owner.draining.is_set():
                    return
                failed = await self._lease(owner)
            if failed and not owner.closed.is_set():
                await asyncio.sleep(PAUSE)

    async def _lease(self, owner: StreamOwner) -> bool:
        """One lease; True when it failed. The slot is ours until Spark reports that the job is over."""
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[StreamSession] = loop.create_future()
        self._expected[number] = (owner, arrived)
        spec = self._spec(owner, number)
        job = loop.run_in_executor(self._threads, self._application.run_lease, spec)
        job.add_done_callback(lambda job: job.cancelled() or job.exception())  # it may end after we have
        talked = True
        try:
            both: set[asyncio.Future[Any]] = {job, arrived}
            done, _ = await asyncio.wait(both, timeout=START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            if arrived in done:
                self._failures.started()
                talked = await self._converse(owner, arrived.result())
            elif not done:
                log.error("lease.not_started", stream=str(owner.stream), seconds=START_TIMEOUT)
        except Exception as error:  # noqa: BLE001 - a defect of ours, an alarm; the slot is held until the job is over
            owner.failed(error)
            talked = False
        finally:
            self._expected.pop(number, None)
        return not (await self._job_over(job, spec, owner, started=arrived.done()) and talked)

    async def _job_over(
        self, job: asyncio.Future[LeaseFigures], spec: LeaseSpec, owner: StreamOwner, *, started: bool
    ) -> bool:
        """Wait for the end of the job; False when Spark reports that it failed: a replay, and no defect of ours."""
        try:
            await self._cancel_hung(job, spec)
        except Exception as error:  # noqa: BLE001 - ours, or Spark does not answer; the slot is held all the same
            owner.failed(error)
        try:
            figures = await asyncio.wait_for(asyncio.shield(job), CANCEL_TIMEOUT)
        except Exception as error:  # noqa: BLE001 - Spark raises whatever it likes
            cause = cause_of(error)
            log.warning("lease.failed", stream=str(spec.stream), lease=spec.number, error=cause)
            owner.task.failed(cause)
            blocks = owner.report.counters.blocks
            if (alarm := self._failures.failed(str(spec.stream), cause, blocks)) is not None:
                owner.report.alarm(alarm)
            self._on_dead()
            if not started and self._failures.unstarted(asyncio.get_running_loop().time()):
                self._on_broken(cause)
            return False
        self._failures.succeeded(str(spec.stream))
        log.debug(
            "lease.over", stream=str(spec.stream), lease=spec.number, rounds=figures.rounds, blocks=figures.blocks
        )
        return True

    async def _converse(self, owner: StreamOwner, session: StreamSession) -> bool:
        """Talk with the task until one of them is done; False when a server was unavailable: the next lease tries
        again. Raises what our own code raises."""
        loop = asyncio.get_running_loop()
        started = loop.time()

        def should_end() -> bool:
            lasted = loop.time() - started
            return lasted > self._config.spark.lease or (self._waiting > 0 and lasted > SHARED_LEASE)

        name = str(owner.stream)
        crashes = self._crashes.setdefault(name, WorkerCrashes(name))
        troubles = self._troubles.setdefault(name, TaskTroubles())
        conversation = Conversation(owner, session, should_end, crashes, troubles)
        talking = asyncio.ensure_future(conversation.run())
        try:
            while not talking.done():
                await asyncio.wait({talking}, timeout=SILENCE / 20)
                if not talking.done() and loop.time() - conversation.touched > SILENCE:
                    log.error("lease.silent", stream=name, seconds=SILENCE)
                    break
        finally:
            talking.cancel()
            await asyncio.wait({talking})
        if talking.cancelled():
            return True
        try:
            talking.result()
        except BlockhouseError as error:
            log.warning("lease.interrupted", stream=name, reason=error.reason, error=str(error))
            return False
        return True

    async def _cancel_hung(self, job: asyncio.Future[LeaseFigures], spec: LeaseSpec) -> None:
        """A job whose conversation is over ends soon; one that does not is cancelled, worker and all."""
        done, _ = await asyncio.wait({job}, timeout=CANCEL_TIMEOUT)
        if not done:
            log.error("lease.hung", stream=str(spec.stream), lease=spec.number)
            await asyncio.to_thread(self._application.cancel, spec)

    def _spec(self, owner: StreamOwner, number: int) -> LeaseSpec:
        config = self._config
        assert self._address is not None, "the gate is opened before streams are served"
        cluster = next(c for c in config.kafka.clusters if c.name == owner.stream.cluster)
        topic = config.kafka.dead_letters
        return LeaseSpec(owner.stream, owner.epoch, number, self._address, cluster, config.clickhouse, topic)
