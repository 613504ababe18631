"""Tasks: one Spark job each for as long as it lives, a session over the gate, and what the driver sends through it."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import structlog

from blockhouse.config.mirror import MirrorConfig
from blockhouse.gate.client import GateAddress
from blockhouse.gate.server import TaskSession
from blockhouse.spark.causes import cause_of
from blockhouse_mirror.gate.messages import Alive, Bye, FromDriver, FromTask, Ping, Stop, Welcome
from blockhouse_mirror.protocol.ownership import GRANT_SECONDS
from blockhouse_mirror.runtime.clock import boot_time
from blockhouse_mirror.work.lease import LeaseFigures, MirrorLease

log = structlog.get_logger(__name__)
START_TIMEOUT = 60.0
PAUSE = 1.0
"""Seconds between a lease that ended and the next one of its task."""
CANCEL_TIMEOUT = 30.0
Session = TaskSession[FromTask, FromDriver]


class Application(Protocol):
    """Runs one lease to its end; blocking."""

    slots: int

    def run_lease(self, spec: MirrorLease) -> LeaseFigures: ...

    def cancel(self, spec: MirrorLease) -> None: ...


class Listener(Protocol):
    """Who hears of tasks, on the event loop."""

    def task_ended(self, task: str, alive_at: float) -> None:
        """Whatever it held has no session any more; it was last confirmed at that moment (boot time)."""

    def ours(self) -> bool:
        """Whether no other driver can have the mirror."""
        ...

    def heard(self, task: str, message: FromTask) -> None: ...


class Tasks:
    """The tasks of one driver. `resize` names those there shall be; each is started again until it ends."""

    def __init__(self, config: MirrorConfig, application: Application, epoch: int, listener: Listener) -> None:
        self._config, self._application, self._epoch, self._listener = config, application, epoch, listener
        self._numbers = itertools.count(1)
        self._expected: dict[int, asyncio.Future[Session]] = {}
        self._sessions: dict[str, Session] = {}
        self._runners: dict[str, asyncio.Task[None]] = {}
        self._ending: set[str] = set()
        self._alive_at: dict[str, float] = {}
        self._stopped = False
        self._threads = ThreadPoolExecutor(max(1, application.slots), thread_name_prefix="lease")
        self._address: GateAddress | None = None
        self.clusters: tuple[str, str] = ("", "")
        """Ids of source and target: known before the first task starts."""

    @property
    def running(self) -> frozenset[str]:
        """Tasks that can be spoken to."""
        return frozenset(self._sessions)

    @property
    def desired(self) -> frozenset[str]:
        return frozenset(self._runners) - self._ending

    def open(self, address: GateAddress) -> None:
        """Tasks call back here."""
        self._address = address

    def resize(self, names: frozenset[str]) -> None:
        """Start what is new. What is left out is ended by `end` once it holds nothing. Nothing starts after `stop`."""
        if self._stopped:
            return
        for name in names:
            self._ending.discard(name)
            if name not in self._runners or self._runners[name].done():
                self._runners[name] = asyncio.ensure_future(self._run(name))

    def end(self, name: str) -> None:
        """Let a task release what it has and end."""
        if name not in self._ending:
            self._ending.add(name)
            self.send(name, Stop())

    def send(self, name: str, message: FromDriver) -> None:
        """To a task that runs; to one that does not nothing is sent."""
        session = self._sessions.get(name)
        if session is not None:
            session.send(message)

    def _answer(self, name: str, session: Session, moment: float) -> None:
        """The grants of the task hold on, unless another driver may have the mirror by now."""
        if self._listener.ours():
            self._alive_at[name] = boot_time()
            session.send(Alive(moment=moment))

    async def accept(self, session: Session) -> None:
        """A task calls: it is answered only when exactly its lease is expected, and only once."""
        arrived = self._expected.pop(session.hello.lease, None)
        if arrived is None or session.hello.epoch != self._epoch or arrived.done():
            log.warning("lease.refused", work=session.hello.work, lease=session.hello.lease, why="not expected")
            return
        arrived.set_result(session)
        await session.gone.wait()

    async def stop(self, seconds: float) -> None:
        """End all tasks; those that do not release what they have in time are left to their grants."""
        self._stopped = True
        for name in tuple(self._runners):
            self.end(name)
        if self._runners:
            await asyncio.wait(self._runners.values(), timeout=seconds)
        for runner in self._runners.values():
            runner.cancel()
        await asyncio.gather(*self._runners.values(), return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, name: str) -> None:
        while name not in self._ending:
            await self._lease(name)
            if name not in self._ending:
                await asyncio.sleep(PAUSE)
        self._runners.pop(name, None)
        self._ending.discard(name)

    async def _lease(self, name: str) -> None:
        assert self._address is not None, "the gate listens before tasks are started"
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[Session] = loop.create_future()
        self._expected[number] = arrived
        config = self._config
        lease = MirrorLease(config.name, name, self._epoch, number, self._address, config.source, config.target)
        job = loop.run_in_executor(self._threads, self._application.run_lease, lease)
        job.add_done_callback(lambda job: job.cancelled() or job.exception())
        try:
            both: set[asyncio.Future[Any]] = {job, arrived}
            done, _ = await asyncio.wait(both, timeout=START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            if arrived in done:
                await self._converse(name, arrived.result())
            elif not done:
                log.error("lease.not_started", task=name, seconds=START_TIMEOUT)
        finally:
            self._expected.pop(number, None)
        await self._over(job, lease)

    async def _converse(self, name: str, session: Session) -> None:
        self._sessions[name] = session
        source, target = self.clusters
        session.send(
            Welcome(
                proof=session.proof,
                source_cluster=source,
                target_cluster=target,
                read_tail=self._config.delivery == "EffectivelyOnce",
                in_flight=self._config.in_flight,
                report_interval=self._config.commit_interval,
                compression=self._config.compression,
                dead_letters=self._config.dead_letter_topic,
                grant_seconds=GRANT_SECONDS,
            )
        )
        log.info("task.starts", task=name, lease=session.hello.lease, pid=session.hello.pid)
        self._alive_at[name] = boot_time()  # the welcome is its first grant
        try:
            while not isinstance(message := await self._next(name, session), Bye | None):
                if isinstance(message, Ping):
                    self._answer(name, session, message.moment)
                else:
                    self._listener.heard(name, message)
        finally:
            del self._sessions[name]
            session.close()
            self._listener.task_ended(name, self._alive_at.pop(name))

    async def _next(self, name: str, session: Session) -> FromTask | None:
        """None when the task is gone, or silent for so long that its grants are over."""
        try:
            return await asyncio.wait_for(session.receive(), GRANT_SECONDS)
        except TimeoutError:
            log.error("task.silent", task=name, seconds=GRANT_SECONDS)
            return None

    async def _over(self, job: asyncio.Future[LeaseFigures], lease: MirrorLease) -> None:
        """Wait for the end of the job: one that does not end is cancelled, worker and all."""
        done, _ = await asyncio.wait({job}, timeout=CANCEL_TIMEOUT)
        if not done:
            log.error("lease.hung", task=lease.task, lease=lease.number)
            await asyncio.to_thread(self._application.cancel, lease)
            done, _ = await asyncio.wait({job}, timeout=CANCEL_TIMEOUT)
        if done and (error := job.exception()) is not None:
            log.warning("lease.failed", task=lease.task, lease=lease.number, error=cause_of(error))
        elif done:
            log.debug("lease.over", task=lease.task, lease=lease.number, records=job.result().records)
