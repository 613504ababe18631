"""Carries faults out: each in a thread of its own, begun, kept up for its time, and taken back whatever happens."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from blockhouse.errors import BlockhouseError
from e2e.chaos.delay import DelayProxies
from e2e.chaos.layout import pod_of
from e2e.chaos.scenario import DISK, Fault, Kind
from e2e.chaos.supervisor import Supervisor
from e2e.chaos.world import World, listens
from e2e.pipeline import AggregatorProcess
from e2e.stack.process import wait_until
from e2e.stack.server import START_TIMEOUT, StackError

STRIKE_TIMEOUT = 15.0
"""Seconds in which an armed aggregator should reach its point before the next one is armed too."""
WORK_TIMEOUT = 150.0
"""Seconds until some aggregator owns a stream, whatever else goes on: with both zones down all start anew, which takes
a busy machine a minute."""
CLOCK_TIMEOUT, CLOCK_TOLERANCE = 30.0, 15.0
"""Seconds within which a shifted process must tell the new time, and by which what it tells may be old."""
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
            Kind.SKEW: self._skew,
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
        """Arm the point in one aggregator after the other, the target first, until one has died of it: another fault
        may keep the target from working."""
        point = injected.fault.point
        armed: dict[str, _Armed] = {}
        struck: list[str] = []

        def strikes() -> bool:
            struck[:] = [name for name, each in armed.items() if each.struck]
            return bool(struck)

        with ExitStack() as down, ExitStack() as until_struck:
            while not struck and len(armed) < self._world.scenario.replicas:
                name = self._working(injected.fault.target, but=armed)
                until_struck.enter_context(self._supervisor.holding_down([name]))
                armed[name] = _Armed(self._world.aggregator(name), point)
                until_struck.callback(armed[name].disarm)
                armed[name].arm()
                wait_until(strikes, timeout=STRIKE_TIMEOUT)
            if not struck:
                raise StackError(f"no aggregator passed {point} within {STRIKE_TIMEOUT:g} s each")
            injected.victim, injected.began = struck[0], self._clock()
            self._tell(f"{struck[0]} died at {point}")
            down.enter_context(self._supervisor.holding_down(struck))
            until_struck.close()
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

    @contextmanager
    def _skew(self, injected: Injected) -> Iterator[None]:
        """Not carried out if the process goes on telling the right time; one that is down meanwhile tells none."""
        fault = injected.fault
        clock = self._world.clocks.get(fault.target)
        if clock is None:
            raise StackError("libfaketime is not installed: run `make setup`")
        told: list[float] = []

        def obeyed() -> bool:
            now = self._world.clock_of(fault.target)
            told[:] = told if now is None else [now - time.time()]
            return (bool(told) and abs(told[0] - clock.offset) < CLOCK_TOLERANCE) or self._over.is_set()

        with clock.shifted(fault.offset):
            if wait_until(obeyed, timeout=CLOCK_TIMEOUT, interval=0.5):
                self._tell(f"the clock of {fault.target} is {told[0] if told else 0:+.1f} s off")
            elif told:
                raise StackError(f"the clock of {fault.target} is {told[0]:+.1f} s off, not {clock.offset:+.0f} s")
            yield

    def _working(self, preferred: str, but: Collection[str] = ()) -> str:
        """The preferred aggregator if it owns streams, else the first of its shard that does, `but` none of these."""
        found: list[str] = []
        layout = self._world.scenario.layout
        pods = layout.pods(layout.shard_of(pod_of(preferred)))

        def look() -> bool:
            owners = [f"aggregator-{pod}" for pod in pods if _owns_streams(self._world.aggregators[pod])]
            owners = sorted({*owners} - {*but}, key=lambda name: (name != preferred, name))
            found[:] = owners
            return bool(owners) or self._over.is_set()

        if not wait_until(look, timeout=WORK_TIMEOUT, interval=0.2) or not found:
            raise StackError("no other aggregator owns a stream")
        return found[0]


def _owns_streams(aggregator: AggregatorProcess) -> bool:
    return aggregator.alive and not aggregator.frozen and bool(aggregator.streams())


class _Armed:
    """One aggregator with a deadly point. It may die of another fault meanwhile, which is no strike."""

    def __init__(self, aggregator: AggregatorProcess, point: str) -> None:
        self._aggregator = aggregator
        self._point = point
        self._before = self._strikes()

    @property
    def struck(self) -> bool:
        return not self._aggregator.alive and self._strikes() > self._before

    def arm(self) -> None:
        self._send("PUT", {"action": "kill-aggregator"})

    def disarm(self) -> None:
        self._send("DELETE")

    def _strikes(self) -> int:
        return len(self._aggregator.logged("fault.injected", point=self._point))

    def _send(self, method: str, body: object = None) -> None:
        """Nobody answers who is dying, and then nothing is armed."""
        data = None if body is None else json.dumps(body).encode()
        url = f"{self._aggregator.url}/faults/{self._point}"
        with (
            suppress(OSError),
            urllib.request.urlopen(urllib.request.Request(url, data=data, method=method), timeout=5) as answer,
        ):
            answer.read()
