"""What idle shards cost the operator: processor time and requests of a reconcile, in one process without any server.

    .venv/bin/python bench/operator_idle.py --shards 50 --shards 200 [--profile]

The operator's own reconciles, queue and watches apart, on a Kubernetes, aggregators, Kafka and ZooKeeper in memory
(`e2e.memory`): requests to aggregators are counted, and what HTTP itself takes is not in the times. Each size is
created, then every shard and the pipeline are reconciled a few times with nothing to do; the least of these is printed,
for other work on the machine only adds. `at 2,050` is what these cost a core there, a reconcile of each a minute.
"""

from __future__ import annotations

import asyncio
import cProfile
import logging
import pstats
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import structlog
import typer
from rich.console import Console
from rich.table import Table

from e2e.memory.fleet import Fleet

ROUNDS = 5
MINUTE = 61.0
WHOLE = 2050

out = Console(width=140)


@dataclass(frozen=True)
class Figures:
    """Of one size. Times in seconds of processor time, a shard."""

    shards: int
    created: float
    requests: float
    writes: float
    idle: float
    pipeline: float
    idle_requests: int
    """Of all shards and the pipeline in one round."""
    idle_writes: int
    statuses: int
    """Statuses asked of aggregators in that round."""
    comparisons: int
    """Requests to compare a table in that round."""
    stored: float
    """Bytes of the stores, a shard."""


def main(
    shards: Annotated[list[int] | None, typer.Option(help="Sizes, repeatable. Default: 50, 200.")] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Print where the time of idle reconciles goes.")] = False,
) -> None:
    """Measure idle reconciles at several sizes."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    found = []
    for size in shards or [50, 200]:
        with out.status(f"{size} shards"):
            found.append(asyncio.run(measure(size, profile=profile)))
        show(found)


async def measure(shards: int, *, profile: bool) -> Figures:
    with tempfile.TemporaryDirectory(prefix="blockhouse-idle-") as folder:
        fleet = Fleet(shards, Path(folder))
        with fleet.kafka.here():
            async with fleet.watched():
                began = time.process_time()
                await fleet.settle()
                created = time.process_time() - began
                requests = list(fleet.api.requests)
                await fleet.both()
                idle, pipeline = await _idle(fleet, profile=profile)
                return Figures(
                    shards,
                    created / shards,
                    len(requests) / shards,
                    sum(request.writes for request in requests) / shards,
                    idle / shards,
                    pipeline / shards,
                    len(fleet.api.requests),
                    sum(request.writes for request in fleet.api.requests),
                    len(fleet.http.asked),
                    len(fleet.http.compared),
                    fleet.services.kubernetes.stores.size / shards,
                )


async def _idle(fleet: Fleet, *, profile: bool) -> tuple[float, float]:
    """The least of some rounds: all shards, and the pipeline. The requests left are those of the last round."""
    profiler, least, least_of_pipeline = cProfile.Profile(), float("inf"), float("inf")
    for number in range(ROUNDS):
        fleet.now += MINUTE
        await fleet.caught_up()
        for requests in (fleet.api.requests, fleet.http.asked, fleet.http.compared):
            requests.clear()
        profiled = profile and number == ROUNDS - 1
        if profiled:
            profiler.enable()
        began = time.process_time()
        for shard in range(fleet.shards):
            await fleet.shard(shard)
        middle = time.process_time()
        await fleet.pipeline()
        ended = time.process_time()
        profiler.disable()
        if not profiled:
            least, least_of_pipeline = min(least, middle - began), min(least_of_pipeline, ended - middle)
    if profile:
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(40)
    return least, least_of_pipeline


def show(found: list[Figures]) -> None:
    table = Table(title="An idle operator by size; 4 replicas a shard", title_justify="left")
    for column in ("shards", "CPU to create", "requests", "writes", "CPU idle", "of the pipeline", "at 2,050"):
        table.add_column(column, justify="right")
    for column in ("idle requests, all", "idle writes, all", "statuses, all", "comparisons, all", "stores"):
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(
            str(one.shards),
            f"{one.created * 1000:.0f} ms",
            f"{one.requests:.1f}",
            f"{one.writes:.1f}",
            f"{one.idle * 1000:.2f} ms",
            f"{one.pipeline * 1000:.2f} ms",
            f"{(one.idle + one.pipeline) * WHOLE / 60:.3f} cores",
            str(one.idle_requests),
            str(one.idle_writes),
            str(one.statuses),
            str(one.comparisons),
            f"{one.stored / 1024:.0f} KiB",
        )
    out.print(table)


if __name__ == "__main__":
    typer.run(main)
