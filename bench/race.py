"""Rounds of one run of every contestant, interleaved, so that whatever else the machine does slows all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from bench.loaders import Loader
from bench.processes import machine_seconds
from bench.testbed import ServerCpu, Testbed
from e2e.stack.process import wait_until
from e2e.stack.server import StackError

RUN_TIMEOUT = 300.0
POLL = 0.1


@dataclass(frozen=True, slots=True)
class Run:
    """One contestant's run. CPU in seconds: `servers` and `loader` while loading, `merges` of the servers from then
    until they had come to rest. `strangers` is how many cores were busy with anything else meanwhile, `requests` how
    many ZooKeeper got while loading, from servers and loader."""

    name: str
    round: int
    rows: int
    seconds: float
    servers: ServerCpu
    loader: float | None
    merges: float
    strangers: float
    requests: int

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds

    @property
    def machine(self) -> float:
        """CPU seconds of servers and loader per million rows."""
        return (self.servers.all + (self.loader or 0)) * 1e6 / self.rows

    @property
    def settled(self) -> float:
        """The same, with the merges that the run left to be done."""
        return self.machine + self.merges * 1e6 / self.rows

    @property
    def loader_per_million(self) -> float | None:
        return None if self.loader is None else self.loader * 1e6 / self.rows


@dataclass(frozen=True, slots=True)
class Summary:
    """Medians over the rounds. Ratios are of rows per second, each with the other contestant of the same round."""

    name: str
    runs: int
    rows_per_second: float
    machine: float
    settled: float
    loader: float | None
    requests: float
    to_limit: float | None
    to_loop: float | None


Start = Callable[[str], Loader]
"""Makes a contestant that loads into the table of this name."""


def race(
    testbed: Testbed, contestants: Mapping[str, Start], rounds: int, rows: int, report: Callable[[Run], None]
) -> list[Run]:
    """Every contestant once a round, in turn forwards and backwards. `report` is called with each run."""
    runs = []
    for number in range(1, rounds + 1):
        names = list(contestants) if number % 2 else list(reversed(list(contestants)))
        for name in names:
            table = f"{name.replace('-', '_')}_{number}"
            testbed.create_table(table)
            try:
                with contestants[name](table) as loader:
                    run = measure(testbed, loader, name, number, rows)
            finally:
                testbed.drop_table(table)
            report(run)
            runs.append(run)
    return runs


def measure(testbed: Testbed, loader: Loader, name: str, number: int, rows: int) -> Run:
    """Prepare, load and check one run. StackError when rows are missing or stored twice."""
    loader.prepare()
    testbed.settle()
    servers, cpu, machine = testbed.cpu(), loader.cpu(), machine_seconds()
    requests = testbed.stack.zookeeper.requests()
    started = time.monotonic()
    loader.begin()
    if not wait_until(lambda: loader.stored() >= rows, timeout=RUN_TIMEOUT, interval=POLL):
        raise StackError(f"{name} stored {loader.stored()} of {rows} rows within {RUN_TIMEOUT:g} s")
    seconds = time.monotonic() - started
    loaded, after, machine = testbed.cpu(), loader.cpu(), machine_seconds() - machine
    requests = testbed.stack.zookeeper.requests() - requests
    used = loaded - servers
    own = None if cpu is None or after is None else after - cpu
    testbed.settle()
    merges = (testbed.cpu() - loaded).all
    found = testbed.rows(loader.table)
    if min(found) < rows or (loader.exact and max(found) > rows):
        raise StackError(f"{name}: {found} rows on the replicas instead of {rows}")
    strangers = max(0.0, machine - used.all - (own or 0)) / seconds
    return Run(name, number, rows, seconds, used, own, merges, strangers, requests)


def summarize(runs: Iterable[Run], *, limit: str, loop: str) -> list[Summary]:
    """One line per contestant, in the order of their first runs."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    return [
        Summary(
            name=name,
            runs=len(own),
            rows_per_second=median(run.rows_per_second for run in own),
            machine=median(run.machine for run in own),
            settled=median(run.settled for run in own),
            loader=_median_of(run.loader_per_million for run in own),
            requests=median(run.requests * 1e6 / run.rows for run in own),
            to_limit=paired_ratio(own, by_name.get(limit, [])),
            to_loop=paired_ratio(own, by_name.get(loop, [])),
        )
        for name, own in by_name.items()
    ]


def paired_ratio(runs: Iterable[Run], others: Iterable[Run]) -> float | None:
    """Median, over the rounds both ran in, of how many times faster; None when there is no such round."""
    speeds = {run.round: run.rows_per_second for run in others}
    return _median_of(run.rows_per_second / speeds[run.round] if run.round in speeds else None for run in runs)


def _median_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
