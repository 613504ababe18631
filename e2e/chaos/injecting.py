"""Carries faults out: each in a thread of its own, begun, kept up for its time, and taken back whatever happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from blockhouse.errors import BlockhouseError
from e2e.chaos.delay import DelayProxies
from e2e.chaos.scenario import DISK, Fault, Kind
from e2e.chaos.striking import Striker
from e2e.chaos.world import World, listens
from e2e.kit.supervisor import Supervisor
from e2e.stack.process import wait_until
from e2e.stack.server import START_TIMEOUT, StackError

CLOCK_TIMEOUT, CLOCK_TOLERANCE = 30.0, 15.0
"""Seconds within which a shifted process must report the new time, and by which its report may be old."""
_STOP_GRACE = 30.0
_RESET = 0.5


@dataclass(slots=True)
class Injected:
    """A fault that was carried out. `began` and `ended` are seconds of the run; `victim` is whom it really hit;
    `error` is why it could not be carried out."""

    fault: Fault
    began: float
    ended: float | None = None
    victim: str = ""
    error: str = ""


class Injector:
    """Does harm to a world. `clock` is in seconds of the run, `log` prints a line of the timeline."""

    def __init__(
        self, world: World, supervisor: Supervisor, clock: Callable[[], float], log: Callable[[str], None]
    ) -> None:
        self.done: list[Injected] = []
        self._world = world
        self._supervisor = supervisor
        self._clock = clock
        self._log = log
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._striker = Striker(world, supervisor, self._over)

    def start(self, fault: Fault) -> None:
        """Begin a fault; returns at once."""
        injected = Injected(fault, self._clock(), victim=fault.target)
        self.done.append(injected)
        thread = threading.Thread(target=self._run, args=(injected,), name=f"fault-{fault.kind}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self, timeout: float) -> None:
        """Wait until all are taken back. StackError when one does not end."""
        for thread in self._threads:
            thread.join(timeout)
            if thread.is_alive():
                raise StackError(f"{thread.name} did not end within {timeout:g} s")

    def abort(self) -> None:
        """Take everything back now."""
        self._over.set()
        for thread in self._threads:
            thread.join(_STOP_GRACE)

    def _run(self, injected: Injected) -> None:
        fault = injected.fault
        actions = {
            Kind.KILL: self._kill,
            Kind.FREEZE: self._freeze,
            Kind.MEMBER: self._member,
            Kind.STRIKE: self._strike,
            Kind.PARTITION: self._cut,
            Kind.LOSS: self._cut,
            Kind.DELAY: self._delay,
            Kind.DISK_FULL: self._disk_full,
            Kind.RESTART: self._restart,
            Kind.SKEW: self._skew,
        }
        self._log(f"fault: {fault}")
        try:
            with actions[fault.kind](injected):
                self._over.wait(fault.seconds)
        except (BlockhouseError, OSError) as error:
            injected.error = str(error)
            self._log(f"fault not carried out: {fault}: {error}")
        else:
            self._log(f"over: {fault}")
        injected.ended = self._clock()

    @contextmanager
    def _kill(self, injected: Injected) -> Iterator[None]:
        names = self._world.members(injected.fault.target)
        with self._supervisor.holding_down(names):
            with ThreadPoolExecutor(len(names)) as pool:  # at once: none sees another die
                for killed in [pool.submit(self._world.servers[name].kill) for name in names]:
                    killed.result()
            yield

    @contextmanager
    def _freeze(self, injected: Injected) -> Iterator[None]:
        servers = [self._world.servers[name] for name in self._world.members(injected.fault.target)]
        with ExitStack() as thaw:
            for server in servers:
                if server.alive:  # else another fault has it down, which is harm enough
                    server.freeze()
                    thaw.callback(server.thaw)
            yield

    @contextmanager
    def _member(self, injected: Injected) -> Iterator[None]:
        injected.victim = self._striker.kill_member(injected.fault)
        injected.began = self._clock()
        yield

    @contextmanager
    def _strike(self, injected: Injected) -> Iterator[None]:
        with ExitStack() as down:
            struck = self._striker.strike(injected.fault, down)
            injected.victim, injected.began = struck[0], self._clock()
            self._log(f"{', '.join(struck)} died at {injected.fault.point}")
            yield

    @contextmanager
    def _cut(self, injected: Injected) -> Iterator[None]:
        fault, network = injected.fault, self._world.network
        if network is None:
            raise StackError("no network namespace of our own: run as root")
        name = f"cut-{id(injected)}"
        share = fault.share if fault.kind is Kind.LOSS else 1.0
        try:
            network.cut(name, self._world.members(fault.target), self._world.members(fault.peer), share=share)
            yield
        finally:
            network.repair(name)

    @contextmanager
    def _delay(self, injected: Injected) -> Iterator[None]:
        """New connections go through the proxy; the open ones are reset, at the end as well."""
        fault, network = injected.fault, self._world.network
        if network is None:
            raise StackError("no network namespace of our own: run as root")
        clients, servers = self._world.members(fault.target), self._world.members(fault.peer)
        ports = [port for name in servers for port in listens(self._world.servers[name])]
        proxies = DelayProxies(ports, fault.delay)
        name = f"delay-{id(injected)}"
        try:
            for port, proxy in proxies.listening.items():
                network.redirect(name, clients, port, proxy)
            network.reset(f"{name}-reset", clients, servers)
            self._over.wait(_RESET)
            network.repair(f"{name}-reset")
            yield
        finally:
            network.repair(f"{name}-reset")
            network.repair(name)
            proxies.close()

    @contextmanager
    def _disk_full(self, _: Injected) -> Iterator[None]:
        disk = self._world.disk
        if disk is None:
            raise StackError(f"{DISK} has no disk of its own: run as root")
        try:
            disk.fill()
            yield
        finally:
            disk.relieve()

    @contextmanager
    def _restart(self, injected: Injected) -> Iterator[None]:
        for name in self._world.members(injected.fault.target):
            server = self._world.servers[name]
            with self._supervisor.holding_down([name]):
                server.stop(grace=_STOP_GRACE)
            if not wait_until(lambda s=server: (s.alive and s.answers()) or self._over.is_set(), timeout=START_TIMEOUT):  # type: ignore[misc]
                raise StackError(f"{name} did not come back within {START_TIMEOUT:g} s")
            self._log(f"{name} restarted")
        yield

    @contextmanager
    def _skew(self, injected: Injected) -> Iterator[None]:
        """Not carried out if the process still reports the right time; one that is down meanwhile reports none."""
        fault = injected.fault
        clock = self._world.clocks.get(fault.target)
        if clock is None:
            raise StackError("libfaketime is not installed: run `make setup`")
        offsets: list[float] = []

        def obeyed() -> bool:
            now = self._world.clock_of(fault.target)
            offsets[:] = offsets if now is None else [now - time.time()]
            return (bool(offsets) and abs(offsets[0] - clock.offset) < CLOCK_TOLERANCE) or self._over.is_set()

        with clock.shifted(fault.offset):
            if wait_until(obeyed, timeout=CLOCK_TIMEOUT, interval=0.5):
                self._log(f"the clock of {fault.target} is {offsets[0] if offsets else 0:+.1f} s off")
            elif offsets:
                raise StackError(f"the clock of {fault.target} is {offsets[0]:+.1f} s off, not {clock.offset:+.0f} s")
            yield
