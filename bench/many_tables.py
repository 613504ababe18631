"""150 tables on one topic, one of them unknown to ClickHouse: do the others stay fresh, metadata small, memory flat?

    .venv/bin/python bench/many_tables.py --minutes 10

Prints a line every ten seconds and, at the end, the slowest acknowledgement of any other table, the largest metadata
and the slope of every aggregator's memory.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from prometheus_client.parser import text_string_to_metric_families

from bench.processes import pss_by_program
from blockhouse.config.endpoints import ZooKeeper
from blockhouse.producer.transport import Transport
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.produce.pool import MessagePool
from e2e.pipeline import AggregatorProcess, Pipeline, PipelineSpec
from e2e.stack import Stack, StackSpec
from e2e.stack.process import wait_until
from e2e.stack.tables import create_replicated_table

COLUMNS = "id UInt64, text String, price Float64, at DateTime"
PINNED = "default.pinned"
WARM_UP = 5.0
"""Seconds of load before anything is counted: workers start, decoders are built."""
ROWS = 10
LATENCY = "blockhouse_message_latency_seconds_bucket"


@dataclass
class Observed:
    """What was seen of all aggregators so far. Memory is PSS in MiB, by aggregator and program, at `seconds`."""

    seconds: list[float] = field(default_factory=list)
    memory: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    units: int = 0
    latencies: dict[float, float] = field(default_factory=dict)
    lagging: set[str] = field(default_factory=set)
    before: dict[float, float] = field(default_factory=dict)
    sent: int = 0
    """Messages of tables that can be loaded."""

    def look(self, aggregators: Mapping[str, AggregatorProcess], at: float) -> None:
        self.seconds.append(at)
        buckets: dict[float, float] = {}
        for name, aggregator in aggregators.items():
            assert aggregator.pid is not None
            for program, pss in pss_by_program(aggregator.pid).items():
                self.memory.setdefault((name, program), []).append(pss / 2**20)
            for metric in text_string_to_metric_families(aggregator.get("/metrics", timeout=10)):
                for sample in metric.samples:
                    if sample.name == LATENCY:
                        limit = float(sample.labels["le"])
                        buckets[limit] = buckets.get(limit, 0) + sample.value
                    elif sample.name == "blockhouse_metadata_units":
                        self.units = max(self.units, int(sample.value))
            for stream in aggregator.streams():
                self.lagging |= {table.table for table in stream.lagging_tables}
        self.before = self.before or buckets
        self.latencies = {limit: count - self.before[limit] for limit, count in buckets.items()}

    def slowest(self) -> float:
        """The least histogram bound, in seconds, that no acknowledgement exceeded."""
        total = max(self.latencies.values(), default=0)
        return min((bound for bound, count in self.latencies.items() if count == total), default=0)

    def sums(self) -> dict[str, int]:
        """MiB of each aggregator at the last look."""
        names = sorted({name for name, _ in self.memory})
        return {name: round(sum(v[-1] for (owner, _), v in self.memory.items() if owner == name)) for name in names}

    def slope(self, name: str, program: str) -> float:
        """MiB per minute over the second half: the first one fills caches."""
        half = len(self.seconds) // 2
        return float(np.polyfit(self.seconds[half:], self.memory[name, program][half:], 1)[0]) * 60


def main(
    minutes: Annotated[float, typer.Option(help="How long the load lasts.")] = 10,
    tables: Annotated[int, typer.Option(help="Tables, the pinned one not counted.")] = 149,
    rate: Annotated[float, typer.Option(help="Messages per second over all tables: each is a quorum insert.")] = 15,
    seed: Annotated[int, typer.Option(help="Of the load.")] = 1,
) -> None:
    """Measure one topic with many tables, one of which cannot be loaded."""
    with tempfile.TemporaryDirectory(prefix="blockhouse-bench-") as folder, Stack(Path(folder), StackSpec()) as stack:
        names = [f"t{number:03}" for number in range(tables)]
        for name in names:
            create_replicated_table(stack, name, COLUMNS, order_by="id")
        with Pipeline(stack, Path(folder), PipelineSpec(name="many", topic="many")) as pipeline:
            pipeline.create_topic()
            pipeline.start()
            with Session(ZooKeeper(servers=stack.zookeeper.connect, root="/blockhouse/many")) as session:
                store = SchemaStore(session)
                pools = schemas(store, [f"default.{name}" for name in names], seed)
            pipeline.wait_for("every stream owned", pipeline.quiet, 60)
            warmed = run(pipeline, pools, WARM_UP, rate, seed)
            pipeline.wait_for("the first messages stored", lambda: settled(pipeline), 60)
            observed = run(pipeline, pools, minutes * 60, rate, seed + 1)
            pipeline.wait_for("all but the pinned table", lambda: settled(pipeline), 120)
            report(pipeline, observed, names, ROWS * (warmed.sent + observed.sent))


def schemas(store: SchemaStore, names: list[str], seed: int) -> list[MessagePool]:
    for name in names:
        store.ensure_id(name)

    def known() -> bool:
        return all(history.current is not None for history in store.all() if history.name in names)

    if not wait_until(known, timeout=120, interval=1):
        raise typer.Exit(1)
    return [MessagePool(history, seed) for history in store.all() if history.name in names]


def run(pipeline: Pipeline, pools: list[MessagePool], seconds: float, rate: float, seed: int) -> Observed:
    observed = Observed()
    rng = random.Random(seed)
    transports = [Transport([cluster], pipeline.spec.topic) for cluster in pipeline.clusters]
    observed.look(pipeline.aggregators, 0)
    started, sent, next_look = time.monotonic(), 0, 10.0
    while (now := time.monotonic() - started) < seconds:
        while sent < now * rate:
            pool = rng.choice(pools)
            transport = transports[sent % len(transports)]
            if sent % 50 == 0:
                transport.send(b"whatever", {"table": PINNED, "schema": "1"}, partition=sent // 50 % 2)
            transport.send(pool.message(ROWS), pool.headers, partition=rng.randrange(pipeline.spec.partitions))
            sent += 1
        for transport in transports:
            transport.poll()
        time.sleep(0.02)  # paces the producer; nothing is synchronised by it
        if now > next_look:
            next_look += 10
            observed.look(pipeline.aggregators, now)
            print(
                f"{now:6.0f} s  {sent} messages  slowest acknowledgement <= {observed.slowest():g} s  "
                f"metadata <= {observed.units}  lagging now or before: {len(observed.lagging)}  "
                f"PSS MiB {observed.sums()}",
                flush=True,
            )
    for transport in transports:
        transport.flush(30)
    observed.sent = sent
    return observed


def settled(pipeline: Pipeline) -> bool:
    """Every stream is read to its end and only the pinned table lags."""
    streams = {s.stream: s for a in pipeline.aggregators.values() for s in a.streams()}
    return all(
        (s := streams.get(stream)) is not None
        and (s.position or 0) >= end
        and not s.blocks
        and {table.table for table in s.lagging_tables} <= {PINNED}
        for stream, end in pipeline.log_ends().items()
    )


def report(pipeline: Pipeline, observed: Observed, names: list[str], produced: int) -> None:
    counted: Callable[[str], int] = lambda name: pipeline.stack.clickhouse[1, 1].execute(  # noqa: E731
        f"SELECT count() FROM {name}"
    )[0][0]
    print(f"\nrows stored, of those produced   {sum(map(counted, names))} of {produced}")
    print(f"slowest acknowledgement         <= {observed.slowest():g} s")
    print(f"largest metadata                {observed.units} of 4095 UTF-16 units")
    for name, program in observed.memory:
        print(f"{name} {program:8} second half      {observed.slope(name, program):+.2f} MiB a minute")


if __name__ == "__main__":
    typer.run(main)
