"""What a scrape of `/metrics` costs an aggregator of many streams and tables, and for how long it holds the event loop.

    .venv/bin/python bench/scrape.py
    .venv/bin/python bench/scrape.py --tables 150 --seconds 60
    .venv/bin/python bench/scrape.py --lagging 1000          every table behind, the most series there can be

The aggregator's own metrics, filled by the code that fills them, and its HTTP server; another process scrapes it, with
gzip as Prometheus does. No servers. Beside what the product does, the client's `generate_latest` on the event loop, as
before, and in a thread. Wall and CPU are medians of scrapes one after another. For the delays a scrape runs every
second beside a timer of 1 ms: of each second the longest delay, of these the median and the longest. `by itself` is the
CPU time that the process used between two ticks: what others on the machine take is not in it. Figures, never pass or
fail.
"""

from __future__ import annotations

import asyncio
import gzip
import multiprocessing
import statistics
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import structlog
import typer
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from rich.console import Console
from rich.table import Table

from blockhouse.metadata.model import Window
from blockhouse.serving import Answer, HttpServer
from blockhouse.streams import StreamId
from blockhouse_aggregator.gate.messages import BlockKey, BuiltBlock, Result
from blockhouse_aggregator.protocol.commits import Applied
from blockhouse_aggregator.protocol.state import StreamState
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.lag_figures import Measured, TableMeasured
from blockhouse_aggregator.runtime.stream.outcomes import Stored
from blockhouse_aggregator.runtime.stream.reporting import StreamReport
from blockhouse_aggregator.runtime.tables.replication import ReplicationWatch

EVERY = 15.0
"""Seconds between two scrapes by which the share of a CPU is stated."""
TICK = 0.001
WARM_UP = 3
"""Scrapes before anything is measured: what is remembered is written, and the client process has started."""


class Replica:
    """What a healthy local replica answers of its replication."""

    def __init__(self, tables: Sequence[str]) -> None:
        self._tables = tables

    async def queue_lengths(self) -> Mapping[str, int]:
        return {table: number % 5 for number, table in enumerate(self._tables)}

    async def lost_parts(self) -> Mapping[str, int]:
        return dict.fromkeys(self._tables, 0)


class Load:
    """Streams and tables at work: `step` is what all of them report in about a second."""

    def __init__(self, streams: int, tables: int, lagging: int) -> None:
        nothing: Any = None  # neither a name nor a history is asked for
        self.figures = Figures()
        self._streams = [StreamId("ab"[number % 2], "events", number // 2) for number in range(streams)]
        self._tables = [f"default.events_of_kind_{number:04}" for number in range(tables)]
        self._lagging = self._tables[:lagging]
        self._reports = [StreamReport(stream, self.figures, nothing, nothing, lambda: 0) for stream in self._streams]
        self._position = 10**10

    async def step(self) -> None:
        for number, report in enumerate(self._reports):
            self._of_stream(report, self._tables[number :: len(self._reports)])
        at = self._position = self._position + 20_000
        measured = Measured(at, at - 7, at + 100, at + 100, 107, 0.25, len(self._lagging), 3, None)
        pending = {(table, "TableMissing"): TableMeasured(1_234, 56_789) for table in self._lagging}
        self.figures.lag.show(dict.fromkeys(self._streams, measured), pending)
        await ReplicationWatch(Replica(self._tables), self.figures).look(self._tables)

    def _of_stream(self, report: StreamReport, tables: Sequence[str]) -> None:
        before = StreamState("r1", 1, "topic", 1, 1, self._position, Window(), 0)
        report.round(before, replace(before, window=Window(sealed=20_000)), ())
        report.committed(Applied(), 1_700)
        report.replayed()
        now_ms = time.time_ns() // 10**6
        for table in tables:
            key = BlockKey(table=table, begin=self._position, end=self._position + 20_000)
            built = BuiltBlock(
                **key.model_dump(), messages=20, rows=12_345, size=1_234_567, revision=1, crc=0, oldest_ms=now_ms - 900
            )
            result = Result(block=key, outcome="stored", attempts=1, elapsed=0.12, deduplicated=True)
            report.stored(key, built, Stored(result, by_provenance=True, lock_wait=0.02), now_ms)


class Served(HttpServer):
    """As the product answers."""

    def health(self) -> Answer:
        return Answer(True, "ok")

    def readiness(self) -> Answer:
        return Answer(True, "ready")


class OnTheLoop(Served):
    """As it was before: the client writes, aiohttp compresses, both on the event loop."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        super().__init__(host, port, registry)
        self._registry = registry

    async def _metrics(self, _: web.Request) -> web.Response:
        response = web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
        response.enable_compression()
        return response


class InAThread(OnTheLoop):
    """The same in a thread, metrics read there too."""

    async def _metrics(self, _: web.Request) -> web.Response:
        body = await asyncio.to_thread(lambda: gzip.compress(generate_latest(self._registry)))
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST, "Content-Encoding": "gzip"})


KINDS: Mapping[str, type[Served]] = {
    "client, on the event loop": OnTheLoop,
    "client, in a thread": InAThread,
    "Blockhouse": Served,
}


def fetched(url: str) -> tuple[float, bytes]:
    """One scrape, in the process that scrapes: its seconds, and the body as it travelled."""
    began = time.perf_counter()
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept-Encoding": "gzip"}), timeout=60) as answer:
        body = answer.read()
    return time.perf_counter() - began, body


class Cost(NamedTuple):
    """Of one scrape, milliseconds: by the clock, CPU of the process, CPU of the thread of the event loop."""

    wall: float
    cpu: float
    loop: float


class Delay(NamedTuple):
    """The longest of one second, milliseconds: by the clock, and CPU that the process used meanwhile."""

    wall: float
    itself: float


@dataclass(frozen=True)
class Measurement:
    """Of one kind."""

    cost: Cost | None
    delays: Sequence[Delay]


Scrape = Callable[[], Awaitable[tuple[float, bytes]]]


@asynccontextmanager
async def scraper(kind: type[Served], registry: CollectorRegistry, other: ProcessPoolExecutor) -> AsyncIterator[Scrape]:
    server, loop = kind("127.0.0.1", 0, registry), asyncio.get_running_loop()
    await server.start()
    url = f"http://127.0.0.1:{server.port}/metrics"
    try:
        yield lambda: loop.run_in_executor(other, fetched, url)
    finally:
        await server.stop()


async def cost(scrape: Scrape, scrapes: int, step: Callable[[], Awaitable[None]]) -> Cost:
    """Medians; between two scrapes the metrics move."""
    found = []
    for _ in range(scrapes):
        await step()
        cpu, loop = time.process_time(), time.thread_time()
        wall, _ = await scrape()
        found.append((wall, time.process_time() - cpu, time.thread_time() - loop))
    return Cost(*(statistics.median(column) * 1e3 for column in zip(*found, strict=True)))


async def longest_delays(seconds: int, scrape: Scrape | None) -> list[Delay]:
    """How late a timer of `TICK` fires at most: of each second, which begins with a scrape, if any."""
    found = []
    for _ in range(seconds):
        scraped = asyncio.ensure_future(scrape()) if scrape else None
        ticks = [(time.perf_counter(), time.process_time())]
        while ticks[-1][0] < ticks[0][0] + 1 or (scraped and not scraped.done()):
            await asyncio.sleep(TICK)
            ticks.append((time.perf_counter(), time.process_time()))
        passed = [(wall - before[0] - TICK, cpu - before[1]) for before, (wall, cpu) in pairwise(ticks)]
        found.append(Delay(*(max(column) * 1e3 for column in zip(*passed, strict=True))))
    return found


async def measure(made: Callable[[], Load], scrapes: int, seconds: int) -> tuple[bytes, int, Mapping[str, Measurement]]:
    """The page, its length as it travels, and the kinds; the kind `no scrape` is the machine itself."""
    found = {"no scrape": Measurement(None, await longest_delays(seconds, None))}
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
        for name, kind in KINDS.items():
            load = made()  # a registry takes a server once
            async with scraper(kind, load.figures.registry, other) as scrape:
                for _ in range(WARM_UP):
                    await load.step()
                    body = (await scrape())[1]
                costs = await cost(scrape, scrapes, load.step)
                found[name] = Measurement(costs, await longest_delays(seconds, scrape))
    return gzip.decompress(body), len(body), found


def counted(page: bytes) -> tuple[int, int]:
    """Families and series of a page."""
    lines = page.decode().split("\n")
    return sum(line.startswith("# TYPE") for line in lines), sum(line[:1] not in ("#", "") for line in lines)


def shown(measurements: Mapping[str, Measurement]) -> Sequence[Table]:
    costs = titled("of a scrape, ms", "wall", "CPU", "CPU of the loop's thread", f"CPU %, every {EVERY:.0f} s")
    delays = titled("delay, ms", "median", "longest", "by itself, median", "by itself, longest")
    for name, measured in measurements.items():
        if measured.cost is not None:
            wall, cpu, loop = measured.cost
            costs.add_row(name, f"{wall:.1f}", f"{cpu:.1f}", f"{loop:.1f}", f"{cpu / EVERY / 10:.2f}")
        columns = zip(*measured.delays, strict=True)
        delays.add_row(name, *(f"{of(column):.1f}" for column in columns for of in (statistics.median, max)))
    return costs, delays


def titled(*titles: str) -> Table:
    table = Table(titles[0])
    for title in titles[1:]:
        table.add_column(title, justify="right")
    return table


def main(
    streams: Annotated[int, typer.Option(min=1, help="Owned, half of them of each of two clusters.")] = 64,
    tables: Annotated[int, typer.Option(min=1)] = 1_000,
    lagging: Annotated[int, typer.Option(min=0, help="Tables that lag, with two more series each.")] = 0,
    scrapes: Annotated[int, typer.Option(min=1, help="Of each kind, one after another.")] = 40,
    seconds: Annotated[int, typer.Option(min=1, help="With a scrape each, of each kind.")] = 30,
) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    page, travelled, found = asyncio.run(measure(lambda: Load(streams, tables, lagging), scrapes, seconds))
    families, series = counted(page)
    print(f"{streams} streams, {tables:,} tables, {lagging:,} of them behind: {families} families, {series:,} series")
    print(f"{len(page):,} bytes, {travelled:,} compressed")
    Console().print(*shown(found), sep="\n")


main.__doc__ = __doc__

if __name__ == "__main__":
    typer.run(main)
