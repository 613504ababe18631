"""Which metrics move in the ordinary life of a pipeline and in which faults, on real servers; and that no counter ever
falls while its process lives. The lives and their metrics are tests/moved_families.toml. `make seen`."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from e2e.pipeline import AggregatorProcess, VerifierProcess, verifier_of
from e2e.stack import Stack
from e2e.stack.process import wait_until
from e2e.stack.tables import create_replicated_table
from tests.integration.runtime_pipeline import Loading, healed, loading

pytestmark = [pytest.mark.integration, pytest.mark.seen]

DECLARED: Mapping[str, Sequence[str]] = tomllib.loads((Path(__file__).parents[1] / "moved_families.toml").read_text())[
    "lives"
]
STREAM = ("a", 0)
SETTINGS = {"faults": {"enabled": True}}
Sample = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels."""


@dataclass
class Scraped:
    """One program's metrics as they were last, and the families that have moved since it was forgotten."""

    program: AggregatorProcess | VerifierProcess
    moved: set[str] = field(default_factory=set)
    _last: dict[str, dict[Sample, float]] = field(default_factory=dict)

    def look(self) -> None:
        """Scrape it, if it lives. A family has moved when a sample of it has come, gone or changed."""
        if not self.program.alive or self.program.frozen:
            return
        try:
            text = self.program.get("/metrics")
        except OSError:
            return  # it is just starting or ending
        now = {family.name: family for family in text_string_to_metric_families(text)}
        found = {name: _samples(family) for name, family in now.items()}
        started = "process_start_time_seconds"
        if self._last and found[started] == self._last[started]:
            self.moved |= {name for name, samples in found.items() if samples != self._last.get(name, {})}
            for name, family in now.items():
                if family.type in ("counter", "histogram"):
                    _never_falls(self._last.get(name, {}), found[name])
        self._last = found

    def value(self, family: str) -> float:
        """Of all samples together, as they were last; 0 for a program that has none."""
        return sum(self._last.get(family, {}).values())


def _samples(family: Metric) -> dict[Sample, float]:
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in family.samples}


def _never_falls(before: Mapping[Sample, float], now: Mapping[Sample, float]) -> None:
    fallen = {sample: (value, now.get(sample)) for sample, value in before.items() if now.get(sample, -1.0) < value}
    assert not fallen


@dataclass
class Living:
    """A pipeline and its verifier, with what is scraped of each program."""

    loading: Loading
    scraped: list[Scraped]

    @property
    def moved(self) -> set[str]:
        """Scrape all programs; the families that have moved in any since `forget`."""
        for each in self.scraped:
            each.look()
        return set().union(*(each.moved for each in self.scraped))

    def forget(self) -> None:
        """What has moved so far does not count; what is there now is where counting begins: no block in flight, also by
        the gauges, which are set once a second. From one that still shows a block the next one's is no movement."""
        assert wait_until(self._nothing_in_flight, timeout=30, interval=0.2)
        for each in self.scraped:
            each.moved.clear()

    def _nothing_in_flight(self) -> bool:
        _ = self.moved
        return not any(each.value("blockhouse_in_flight_blocks") for each in self.scraped)

    def table(self, name: str) -> str:
        """A table of which rows are stored."""
        found = self.loading.feed.table(name)
        self.loading.feed.send(found, 2)
        self.loading.settle(found)
        return found

    def owner(self) -> AggregatorProcess:
        return self.loading.owner(*STREAM)


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    folder = tmp_path_factory.mktemp("families")
    with loading(running_stack, folder, "families", partitions=1, settings=SETTINGS) as found:
        verifier = verifier_of(found.pipeline)
        verifier.start()
        try:
            yield Living(found, [*map(Scraped, found.aggregators), Scraped(verifier)])
        finally:
            verifier.stop()


@pytest.fixture
def living(running: Living) -> Iterator[Living]:
    with healed(running.loading):
        yield running


# --- lives: what is done before the metrics are read, and undone afterwards -----------------------------------


@contextmanager
def rows_are_loaded(living: Living) -> Iterator[None]:
    table = living.table("families_rows")
    living.forget()
    with living.loading.feed.flowing(table):
        yield


@contextmanager
def rows_wait_for_their_quorum(living: Living) -> Iterator[None]:
    """The gauges of what waits are set once a second, from ends of logs that are asked for every two: of rows that are
    stored at once they may never show that they waited. More rows wait than the table began with: the lag of those may
    be what a gauge still shows when counting begins."""
    table = living.table("families_waiting")
    living.forget()
    with living.loading.fetches_stopped(table):
        living.loading.feed.send(table, 5, to=[STREAM])
        yield


@contextmanager
def a_message_cannot_be_loaded(living: Living) -> Iterator[None]:
    table = living.table("families_dead")
    living.forget()
    living.loading.feed.raw(b"\xff\xff", {"table": table, "format": "rows", "schema": "1"}, to=STREAM)
    yield


@contextmanager
def a_transaction_is_aborted(living: Living) -> Iterator[None]:
    table = living.table("families_aborted")
    living.forget()
    pipeline = living.loading
    bootstrap = pipeline.stack.kafka["a"].bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "families", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pipeline.pipeline.spec.topic, b"never committed", partition=0, headers={"table": table})
    producer.flush(30)
    producer.abort_transaction(30)
    pipeline.feed.send(table, 2, to=[STREAM])
    yield


@contextmanager
def a_table_is_missing(living: Living) -> Iterator[None]:
    known = living.table("families_known")
    living.forget()
    value, headers = living.loading.feed.encode(known, [{"id": 7, "text": "early"}])
    living.loading.feed.raw(value, {**headers, "table": "default.families_missing"}, to=STREAM, rows=1)
    yield
    create_replicated_table(living.loading.stack, "families_missing", "id UInt64, text String", order_by="id")


@contextmanager
def a_worker_dies(living: Living) -> Iterator[None]:
    living.forget()
    table = living.loading.feed.table("families_worker")
    living.owner().arm_fault("after-insert", action="kill-worker", table=table)
    living.loading.feed.send(table, 2, to=[STREAM])
    yield


LIVES: Mapping[str, Callable[[Living], AbstractContextManager[None]]] = {
    "rows are loaded": rows_are_loaded,
    "rows wait for their quorum": rows_wait_for_their_quorum,
    "a message cannot be loaded": a_message_cannot_be_loaded,
    "a transaction is aborted": a_transaction_is_aborted,
    "a table is missing": a_table_is_missing,
    "a worker dies behind an insert": a_worker_dies,
}


def test_every_life_that_is_declared_is_lived() -> None:
    assert LIVES.keys() == DECLARED.keys()


@pytest.mark.parametrize("life", LIVES)
def test_its_metrics_move_and_no_counter_falls(life: str, living: Living) -> None:
    expected, after = set(DECLARED[life]), dict[str, float]()

    with LIVES[life](living):
        began = time.monotonic()

        def look() -> bool:
            for name in living.moved - after.keys():
                after[name] = round(time.monotonic() - began, 1)
            return expected <= after.keys()

        wait_until(look, timeout=60, interval=0.2)
        assert sorted(expected - after.keys()) == []
    print(f"MOVED | {life} | {len(after)} families | seconds after which each had: {after}")
    living.loading.settle()
