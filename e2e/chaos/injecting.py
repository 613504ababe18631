"""Carries faults out: each in a thread of its own, begun, kept up for its time, and taken back whatever happens."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from blockhouse.errors import BlockhouseError
from e2e.chaos.delay import DelayProxies
from e2e.chaos.scenario import DISK, Fault, Kind
from e2e.chaos.supervisor import Supervisor
from e2e.chaos.world import World, listens
from e2e.stack.process import wait_until
from e2e.stack.server import START_TIMEOUT, StackError

STRIKE_TIMEOUT = 45.0
"""Seconds in which an armed aggregator must reach its point: rows flow all the time, but a former fault may linger."""
_STOP_GRACE = 30.0
_RESET = 0.5


@dataclass(slots=True)
class Injected:
    """A fault that was carried out. `began` and `ended` are seconds of the run; `victim` is whom it really hit;
    `error` says why it could not be carried out."""

    fault: Fault
    began: float
    ended: float | None = None
    victim: str = ""
    error: str = ""


class Injector:
    """Does harm to a world. `clock` is in seconds of the run, `tell` prints a line of the timeline."""

    def __init__(
        self, world: World, supervisor: Supervisor, clock: Callable[[], float], tell: Callable[[str], None]
    ) -> None:
        self.done: list[Injected] = []
        self._world = world
        self._supervisor = supervisor
        self._clock = clock
        self._tell = tell
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

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
        }
        self._tell(f"fault: {fault}")
        try:
            with actions[fault.kind](injected):
                self._over.wait(fault.seconds)
        except (BlockhouseError, OSError) as error:
            injected.error = str(error)
            self._tell(f"fault not carried out: {fault}: {error}")
        else:
            self._tell(f"over: {fault}")
        injected.ended = self._clock()

    @contextmanager
    def _kill(self, injected: Injected) -> Iterator[None]:
        names = self._world.members(injected.fault.target)
        with self._supervisor.holding_down(names):
            for name in names:
                self._world.servers[name].kill()
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
        name = injected.victim = self._working(injected.fault.target)
        self._world.aggregator(name).kill_member(injected.fault.member)
        yield

    @contextmanager
    def _strike(self, injected: Injected) -> Iterator[None]:
        """Arm the point, wait for the death. The victim is another one when the target owns nothing to die of."""
        name = injected.victim = self._working(injected.fault.target)
        aggregator = self._world.aggregator(name)
        with self._supervisor.holding_down([name]):
            _put(f"{aggregator.url}/faults/{injected.fault.point}", {"action": "kill-aggregator"})
            if not wait_until(lambda: not aggregator.alive or self._over.is_set(), timeout=STRIKE_TIMEOUT):
                raise StackError(f"{name} did not pass {injected.fault.point} within {STRIKE_TIMEOUT:g} s")
            injected.began = self._clock()
            self._tell(f"{name} died at {injected.fault.point}")
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
            network.mend(name)

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
            network.mend(f"{name}-reset")
            yield
        finally:
            network.mend(f"{name}-reset")
            network.mend(name)
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
            self._tell(f"{name} restarted")
        yield

    def _working(self, preferred: str) -> str:
        """The preferred aggregator if it owns streams, else the first that does."""
        found: list[str] = []

        def look() -> bool:
            owners = [name for name, a in self._world.aggregators.items() if a.alive and not a.frozen and a.streams()]
            owners.sort(key=lambda replica: f"aggregator-{replica}" != preferred)
            found[:] = owners
            return bool(owners) or self._over.is_set()

        if not wait_until(look, timeout=STRIKE_TIMEOUT, interval=0.2) or not found:
            raise StackError("no aggregator owns a stream")
        return f"aggregator-{found[0]}"


def _put(url: str, body: dict[str, object]) -> None:
    request = urllib.request.Request(url, data=json.dumps(body).encode(), method="PUT")
    with urllib.request.urlopen(request, timeout=5) as answer:
        answer.read()
