"""Observes a run from outside twice a second: lag, owners, memory, counters. It never influences what it observes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import psutil

from blockhouse.contract.aggregator import Phase, StatusPage
from e2e.chaos.world import World
from e2e.kit.tally import Tally, read_counters
from e2e.pipeline import AggregatorProcess
from e2e.stack.periodic import Periodic
from e2e.stack.process import session_members

INTERVAL = 0.5
MEMORY_EVERY = 5.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One look. `at` is in seconds of the run; `lags` by shard in messages that brokers have acknowledged and that are
    not known to be stored; `owners` has, by stream, the process (pod, pid) that reports to own it; `unowned` counts the
    streams that no process reports to own."""

    at: float
    lags: tuple[int, ...]
    owners: Mapping[str, tuple[str, int]]
    unowned: int = 0

    @property
    def lag(self) -> int:
        """Of the shard that has the most."""
        return max(self.lags)


@dataclass(frozen=True, slots=True)
class Resident:
    """Memory of one process, or of the largest Python worker of an aggregator, in bytes: how many workers there are
    follows the streams, and pages they share would be counted with each of them."""

    at: float
    name: str
    life: int
    size: int


class Observer(Periodic):
    """A context manager; threads of its own. `sent` returns how many messages brokers have acknowledged by now, by
    shard."""

    def __init__(self, world: World, sent: Callable[[], Sequence[int]], clock: Callable[[], float]) -> None:
        super().__init__(self._look_and_weigh, INTERVAL, name="observer")
        self.tally = Tally()
        self.samples: list[Sample] = []
        self.memory: list[Resident] = []
        self._world = world
        self._layout = world.scenario.layout
        self._sent = sent
        self._clock = clock
        self._stored: list[dict[str, int]] = [{} for _ in world.pipelines]
        self._streams = sum(pipeline.spec.partitions * len(pipeline.kafka) for pipeline in world.pipelines)
        self._weighed = 0.0
        self._pool = ThreadPoolExecutor(len(world.aggregators) or 1, thread_name_prefix="observe")

    @property
    def stored(self) -> tuple[int, ...]:
        """Messages known to be stored, by shard."""
        return tuple(sum(streams.values()) for streams in self._stored)

    def forget(self) -> None:
        """The clock starts again: drop what was seen by the old one."""
        self.samples.clear()
        self.memory.clear()

    def look(self) -> None:
        """Take a sample now."""
        sent = self._sent()  # before the positions: a lag must not be negative for want of simultaneity
        owners: dict[str, tuple[str, int]] = {}
        for pod, pid, status in self._pool.map(self._ask, self._world.aggregators):
            stored = self._stored[self._layout.shard_of(pod) - 1]
            for stream in status.streams if status is not None else ():
                name, below = stream.stream, stream.stored_below
                if below is not None:
                    stored[name] = max(stored.get(name, 0), below)
                if stream.state in (Phase.REPLAY, Phase.CONSUME):
                    owners[name] = pod, pid
        lags = tuple(max(0, one - other) for one, other in zip(sent, self.stored, strict=True))
        self.samples.append(Sample(self._clock(), lags, owners, self._streams - len(owners)))

    def _ask(self, pod: str) -> tuple[str, int, StatusPage | None]:
        aggregator = self._world.aggregators[pod]
        pid = aggregator.pid
        if pid is None or aggregator.frozen:
            return pod, 0, None
        status = aggregator.status()
        with suppress(OSError):  # it is dying, or not up yet: the last answer stands
            self.tally.note(pod, pid, read_counters(aggregator.get("/metrics")))
        return pod, pid, status

    def _weigh(self) -> None:
        at = self._clock()
        for name, server in self._world.servers.items():
            leader = server.pid
            if leader is None:
                continue
            sizes: dict[str, int] = {}
            workers = server.members("worker") if isinstance(server, AggregatorProcess) else []
            for pid in session_members(leader):
                part = "" if pid == leader else " worker" if pid in workers else " java"
                sizes[part] = max(sizes.get(part, 0), _resident(pid))
            if self._clock() >= at:  # else the clock has started again meanwhile
                self.memory += [Resident(at, name + part, leader, size) for part, size in sizes.items()]

    def _look_and_weigh(self) -> None:
        self.look()
        if time.monotonic() - self._weighed >= MEMORY_EVERY:
            self._weighed = time.monotonic()
            self._weigh()

    def over(self) -> None:
        self._pool.shutdown(wait=False)


def _resident(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:  # gone meanwhile
        return 0
