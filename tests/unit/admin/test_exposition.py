"""/metrics: the client's own text, of one moment, written beside the event loop and once for all who ask together."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from blockhouse import exposition
from blockhouse.exposition import Exposition
from blockhouse.serving import Answer, HttpServer
from blockhouse.streams import StreamId
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.lag_figures import Measured
from blockhouse_aggregator.runtime.series import end

PATIENCE = 20.0
VALUES = (0, 1, -1, 0.1, 5e-324, 999_999, 1e6, 12_345_678.9, 1.8e308, float("inf"), float("-inf"), float("nan"))
NAMES = ("default.t", 'a "quoted" one', "back\\slash", "two\nlines", "Käse", "", "ends with 0.0", "0.0\n")


class Server(HttpServer):
    def health(self) -> Answer:
        return Answer(True, "ok")

    def readiness(self) -> Answer:
        return Answer(True, "ready")


class Collected:
    """A collector of our own, which reads what the loop changes."""

    def __init__(self) -> None:
        self.defect: Exception | None = None
        self.calls = 0

    def collect(self) -> Iterator[Metric]:
        asyncio.get_running_loop()  # raises RuntimeError elsewhere
        self.calls += 1
        if self.defect is not None:
            raise self.defect
        yield GaugeMetricFamily("collected", "Calls so far.", value=float(self.calls))


@pytest.fixture(autouse=True)
def no_times_of_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every program has it, of `process_figures`."""
    monkeypatch.setattr("prometheus_client.metrics._use_created", False)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def pages(registry: CollectorRegistry) -> Iterator[Exposition]:
    with closed(Exposition(registry)) as found:
        yield found


@contextmanager
def closed(pages: Exposition) -> Iterator[Exposition]:
    try:
        yield pages
    finally:
        pages.close()


@asynccontextmanager
async def served(registry: CollectorRegistry) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    server = Server("127.0.0.1", 0, registry)
    await server.start()
    try:
        async with aiohttp.ClientSession() as client:
            yield client, f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


@contextmanager
def thread_taken(pages: Exposition) -> Iterator[None]:
    """What is to be written waits until the end of this."""
    free = threading.Event()
    pages._thread.submit(free.wait, PATIENCE)
    try:
        yield
    finally:
        free.set()


async def steps_of_the_loop() -> None:
    """As many as one who asks needs until the page is read."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_the_text_is_the_clients_of_every_metric_of_an_aggregator() -> None:
    figures, streams = Figures(), [StreamId("a", "events", number) for number in range(3)]
    with closed(Exposition(figures.registry)) as pages:
        for position in (0, 7, 10**12):
            for metric in vars(figures).values():
                if isinstance(metric, Counter | Gauge) and metric._labelnames:
                    metric.labels(*metric._labelnames).inc(position)
            of_all = Measured(position, position, None, position, 0, 0.25, None, 1, None)
            figures.lag.show(dict.fromkeys(streams, of_all), {})
            figures.insert_seconds.observe(position)
            assert (await pages.page()).plain == generate_latest(figures.registry)


async def test_the_text_is_the_clients_whatever_names_and_values_are(
    registry: CollectorRegistry, pages: Exposition
) -> None:
    gauge = Gauge("gauge", 'What "it"\nis: \\.', ["one", "another"], registry=registry)
    Counter("unlabelled_total", "Of nothing.", registry=registry).inc(3)
    counter = Counter("counted", "Counted.", ["name"], registry=registry)
    for turn in range(len(VALUES)):
        for number, name in enumerate(NAMES):
            gauge.labels(name, NAMES[-number]).set(VALUES[(turn + number) % len(VALUES)])
            counter.labels(name).inc(turn)
        assert (await pages.page()).plain == generate_latest(registry)


async def test_a_series_that_is_over_is_in_no_page_and_may_come_back(
    registry: CollectorRegistry, pages: Exposition
) -> None:
    gauge = Gauge("gauge", "It.", ["name"], registry=registry)
    for ended, begun in (("", "a"), ("", "b"), ("a", "c"), ("b", "a"), ("c", "")):
        if begun:
            gauge.labels(begun).set(1)
        if ended:
            end(gauge, ended)
        assert (await pages.page()).plain == generate_latest(registry)
    assert [set(family.series) for family in pages._families.values()] == [{("a",)}]  # nothing is kept of the others


async def test_a_page_is_of_one_moment_although_the_loop_continues(
    registry: CollectorRegistry, pages: Exposition
) -> None:
    counter = Counter("rows", "Rows.", ["table"], registry=registry)
    gauge = Gauge("stopped", "Stopped.", ["stream"], registry=registry)
    collected = Collected()
    registry.register(collected)
    counter.labels("t").inc()
    gauge.labels("s").set(1)
    before = generate_latest(registry).replace(b"collected 1.0", b"collected 2.0")
    with thread_taken(pages):
        asked = asyncio.create_task(pages.page())
        await steps_of_the_loop()
        assert collected.calls == 2, "the page is not read yet"
        counter.labels("t").inc()
        counter.labels("u").inc()
        end(gauge, "s")
    assert (await asked).plain == before


async def test_the_loop_answers_others_while_a_page_is_compressed(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressing, answered, compress = threading.Event(), threading.Event(), gzip.compress

    def slow(*args: Any, **more: Any) -> bytes:
        compressing.set()
        assert answered.wait(PATIENCE), "the loop is held"
        return compress(*args, **more)

    monkeypatch.setattr(exposition.gzip, "compress", slow)
    async with served(registry) as (client, url):

        async def scrape() -> int:
            async with client.get(f"{url}/metrics") as answer:
                return answer.status

        scraped = asyncio.create_task(scrape())
        await asyncio.to_thread(compressing.wait, PATIENCE)
        async with client.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        assert not scraped.done()
        answered.set()
        assert await scraped == 200


async def test_those_who_ask_together_share_a_page_and_the_next_gets_a_new_one(
    registry: CollectorRegistry, pages: Exposition
) -> None:
    collected = Collected()
    registry.register(collected)
    with thread_taken(pages):
        first = asyncio.create_task(pages.page())
        await steps_of_the_loop()
        others = [asyncio.create_task(pages.page()) for _ in range(3)]
        await steps_of_the_loop()
        others.pop().cancel()  # its client is gone
    page = await first
    assert all([await other is page for other in others])
    assert b"collected 1.0" in page.plain
    assert b"collected 2.0" in (await pages.page()).plain


async def test_gzip_is_for_those_who_accept_it(registry: CollectorRegistry) -> None:
    Counter("rows", "Rows.", registry=registry).inc(5)
    async with served(registry) as (client, url):

        async def get(**headers: str) -> tuple[str | None, str, bytes]:
            raw: dict[str, Any] = {"headers": headers, "auto_decompress": False}  # the latter is not in aiohttp's types
            async with client.get(f"{url}/metrics", **raw) as answer:
                return answer.headers.get("Content-Encoding"), answer.headers["Content-Type"], await answer.read()

        encoding, kind, body = await get(**{"Accept-Encoding": "deflate, GZIP;q=1"})
        plain_encoding, plain_kind, plain = await get(**{"Accept-Encoding": "identity"})
    assert (encoding, plain_encoding) == ("gzip", None)
    assert kind == plain_kind == "text/plain; version=1.0.0; charset=utf-8"
    assert b"rows_total 5.0\n" in plain
    assert b"rows_total 5.0\n" in gzip.decompress(body)


async def test_a_defect_of_a_collector_is_500_and_the_next_page_is_whole_again(registry: CollectorRegistry) -> None:
    collected = Collected()
    registry.register(collected)
    async with served(registry) as (client, url):

        async def status() -> int:
            async with client.get(f"{url}/metrics") as answer:
                return answer.status

        collected.defect = ValueError("a defect")
        assert await status() == 500
        collected.defect = None
        assert await status() == 200
