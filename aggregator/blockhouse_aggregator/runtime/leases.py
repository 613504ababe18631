"""Leases: one Spark job after another for every stream we own, as many at once as Spark has slots."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import structlog

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse_aggregator.gate.client import GateAddress
from blockhouse_aggregator.gate.server import TaskSession
from blockhouse_aggregator.runtime.conversation import Conversation
from blockhouse_aggregator.runtime.deaths import Deaths
from blockhouse_aggregator.runtime.owner import StreamOwner
from blockhouse_aggregator.spark.task import LeaseFigures, LeaseSpec

log = structlog.get_logger(__name__)
SHARED_LEASE = 2.0
"""Seconds of a lease while other streams wait for a slot."""
START_TIMEOUT = 60.0
SILENCE = 180.0
"""Seconds without a word after which a task is hung: longer than any scan, replay or insert may take."""
CANCEL_TIMEOUT = 30.0


class Application(Protocol):
    """Runs one lease to its end; blocking."""

    slots: int

    def run_lease(self, spec: LeaseSpec) -> LeaseFigures: ...

    def cancel(self, spec: LeaseSpec) -> None: ...


class Leases:
    """Hands leases to the application and tasks that call back to the owner of their stream."""

    def __init__(self, config: AggregatorConfig, application: Application, on_dead: Callable[[], None]) -> None:
        self._config = config
        self._application = application
        self._on_dead = on_dead
        self._slots = asyncio.Semaphore(application.slots)
        self._waiting = 0
        self._numbers = itertools.count(1)
        self._expected: dict[int, tuple[StreamOwner, asyncio.Future[TaskSession]]] = {}
        self._threads = ThreadPoolExecutor(application.slots, thread_name_prefix="lease")
        self._deaths: dict[str, Deaths] = {}
        self.address: GateAddress | None = None

    async def accept(self, session: TaskSession) -> None:
        """A task calls: it is spoken to only when exactly its lease is expected, and only once."""
        hello = session.hello
        expected = self._expected.pop(hello.lease, None)
        if expected is None or (str(expected[0].stream), expected[0].epoch) != (hello.stream, hello.epoch):
            log.warning(
                "lease.refused", stream=hello.stream, lease=hello.lease, why="not expected, or a second attempt"
            )
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
                await asyncio.sleep(1.0)

    async def _lease(self, owner: StreamOwner) -> bool:
        """One lease; True when it failed. The slot is ours until Spark says that the job is over."""
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[TaskSession] = loop.create_future()
        self._expected[number] = (owner, arrived)
        spec = self._spec(owner, number)
        job = loop.run_in_executor(self._threads, self._application.run_lease, spec)
        try:
            job.add_done_callback(lambda job: job.cancelled() or job.exception())  # it may end after we have
            both: set[asyncio.Future[Any]] = {job, arrived}
            done, _ = await asyncio.wait(both, timeout=START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            if arrived in done:
                await self._converse(owner, arrived.result())
            elif not done:
                log.error("lease.not_started", stream=str(owner.stream), seconds=START_TIMEOUT)
            figures = await self._ended(job, spec)
            log.info("lease.over", stream=str(owner.stream), lease=number, rounds=figures.rounds, blocks=figures.blocks)
            return False
        except Exception as error:  # noqa: BLE001 - Spark raises whatever it likes; every failure is a replay
            log.warning("lease.failed", stream=str(owner.stream), lease=number, error=_last_line(error))
            self._on_dead()
            return True
        finally:
            self._expected.pop(number, None)

    async def _converse(self, owner: StreamOwner, session: TaskSession) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()

        def should_end() -> bool:
            lasted = loop.time() - started
            return lasted > self._config.spark.lease or (self._waiting > 0 and lasted > SHARED_LEASE)

        name = str(owner.stream)
        deaths = self._deaths.setdefault(name, Deaths(name))
        conversation = Conversation(owner, session, should_end, deaths)
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
        if not talking.cancelled():
            talking.result()

    async def _ended(self, job: asyncio.Future[LeaseFigures], spec: LeaseSpec) -> LeaseFigures:
        """Wait for the end of a job whose conversation is over; one that does not end is cancelled, worker and all."""
        done, _ = await asyncio.wait({job}, timeout=CANCEL_TIMEOUT)
        if not done:
            log.error("lease.hung", stream=str(spec.stream), lease=spec.number)
            await asyncio.to_thread(self._application.cancel, spec)
        return await asyncio.wait_for(asyncio.shield(job), CANCEL_TIMEOUT)

    def _spec(self, owner: StreamOwner, number: int) -> LeaseSpec:
        config = self._config
        assert self.address is not None
        cluster = next(c for c in config.kafka.clusters if c.name == owner.stream.cluster)
        topic = config.kafka.dead_letters
        return LeaseSpec(owner.stream, owner.epoch, number, self.address, cluster, config.clickhouse, topic)


def _last_line(error: Exception) -> str:
    """Spark's errors are pages of both languages' stack traces; the last line of ours says what happened."""
    lines = [line for line in str(error).splitlines() if "Error" in line or "Exception" in line]
    return (lines[0] if lines else repr(error)).strip()[:300]
