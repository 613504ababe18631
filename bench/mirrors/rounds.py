"""A backlog of records of 1 KB, mirrored by every contestant once a round, in turn forwards and backwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from bench.mirrors.contestants import Start
from bench.mirrors.field import RECORD, WARM, Field, hidden
from bench.processes import machine_seconds
from e2e.stack.server import StackError

TIMEOUT = 300.0


@dataclass(frozen=True, slots=True)
class Run:
    """One contestant's run. CPU seconds of all its own processes and of both brokers; `strangers` is how many cores
    were busy with anything else meanwhile."""

    name: str
    round: int
    records: int
    seconds: float
    cpu: float
    brokers: float
    strangers: float

    @property
    def gigabytes(self) -> float:
        """10^9 bytes of keys and values."""
        return self.records * RECORD / 1e9

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds


@dataclass(frozen=True, slots=True)
class Summary:
    """Medians over the rounds; `ratio` and `cpu_ratio` are to the baseline of the same round (None without one)."""

    name: str
    runs: int
    records_per_second: float
    megabytes_per_second: float
    cpu_per_gigabyte: float
    brokers_per_gigabyte: float
    ratio: float | None
    cpu_ratio: float | None
    lowest_ratio: float | None


def race(
    field: Field, contestants: Mapping[str, Start], rounds: int, records: int, report: Callable[[Run], None]
) -> list[Run]:
    """`report` is called with each run. One run more comes first and counts for nothing: the brokers compile themselves
    meanwhile."""
    runs: list[Run] = []
    measure(field, next(iter(contestants.values())), "warm-up", 0, records)
    for number in range(1, rounds + 1):
        names = list(contestants) if number % 2 else list(reversed(list(contestants)))
        for name in names:
            runs.append(measure(field, contestants[name], name, number, records))
            report(runs[-1])
    return runs


def measure(field: Field, start: Start, name: str, number: int, records: int) -> Run:
    """One run. StackError when records are missing or doubled."""
    topic = f"{name}-{number}"
    field.create(topic)
    backlog = hidden(field, topic, records)
    with start(field, topic) as contestant:
        contestant.wait_for(WARM)
        cpu, brokers, machine = contestant.cpu(), field.cpu(), machine_seconds()
        began = time.monotonic()
        backlog.reveal()
        contestant.wait_for(WARM + records, TIMEOUT)
        seconds = time.monotonic() - began
        used, served, all_of_it = contestant.cpu() - cpu, field.cpu() - brokers, machine_seconds() - machine
    found = field.arrived(topic)
    field.delete(topic)
    if found != WARM + records:
        raise StackError(f"{name}: {found} records on the target instead of {WARM + records}")
    return Run(name, number, records, seconds, used, served, max(0.0, all_of_it - used - served) / seconds)


def summarize(runs: Iterable[Run], baseline: str) -> list[Summary]:
    """One line per contestant, in the order of their first runs."""
    by_name: dict[str, dict[int, Run]] = {}
    for run in runs:
        by_name.setdefault(run.name, {})[run.round] = run
    base = by_name.get(baseline, {})
    found = []
    for name, own in by_name.items():
        pairs = [(run, base[number]) for number, run in own.items() if number in base]
        ratios = [run.records_per_second / other.records_per_second for run, other in pairs]
        cpu_ratios = [run.cpu / other.cpu for run, other in pairs if other.cpu]
        found.append(
            Summary(
                name=name,
                runs=len(own),
                records_per_second=median(run.records_per_second for run in own.values()),
                megabytes_per_second=median(run.gigabytes * 1000 / run.seconds for run in own.values()),
                cpu_per_gigabyte=median(run.cpu / run.gigabytes for run in own.values()),
                brokers_per_gigabyte=median(run.brokers / run.gigabytes for run in own.values()),
                ratio=median(ratios) if ratios else None,
                cpu_ratio=median(cpu_ratios) if cpu_ratios else None,
                lowest_ratio=min(ratios, default=None),
            )
        )
    return found
