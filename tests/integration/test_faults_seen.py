"""Eight faults that were once invisible, on real servers: within 15 s each is seen as lag, as a reason on /status and
/readyz, by `blockhouse status` and by the shipped alert rule; and as none of it once it has healed. `make seen`."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack
from e2e.stack.tables import create_replicated_table
from tests.integration.runtime_pipeline import NOTHING_MOVES, healed, loading
from tests.integration.seen_outside import STANDS_STILL, UNAVAILABLE, UNFIT, Fault, Monitored, prometheus_of

pytestmark = [pytest.mark.integration, pytest.mark.seen]

STREAM = ("a", 0)


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    folder = tmp_path_factory.mktemp("seen")
    with (
        loading(running_stack, folder, "seen", partitions=1, settings=NOTHING_MOVES) as found,
        prometheus_of(found, folder / "prometheus") as prometheus,
    ):
        yield Monitored(found, prometheus)


@pytest.fixture
def monitored(running: Monitored) -> Iterator[Monitored]:
    with healed(running.loading):
        yield running


def loaded(monitored: Monitored, name: str) -> tuple[str, AggregatorProcess, str]:
    """A table of which a few rows are stored, the owner of the first stream, and the stream."""
    pipeline = monitored.loading
    table = pipeline.feed.table(name)
    pipeline.feed.send(table, 3)
    pipeline.settle(table)
    return table, pipeline.owner(*STREAM), pipeline.stream(*STREAM)


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_frozen_replica(monitored: Monitored) -> None:
    pipeline = monitored.loading
    table, owner, stream = loaded(monitored, "seen_replica")
    alerts = (STANDS_STILL, UNFIT)
    fault = Fault("ClickHouse replica frozen", frozenset({"ReplicaUnfit"}), lag=3, alerts=alerts)
    server = next(s for s in pipeline.stack.clickhouse.values() if s.replica == owner.replica)
    with pipeline.feed.flowing(table, to=[STREAM]):
        server.freeze()
        monitored.shows(fault, owner, stream)
        server.thaw()
    pipeline.settle(table)
    monitored.clear(fault)


def test_a_worker_that_hangs(monitored: Monitored) -> None:
    pipeline = monitored.loading
    table, owner, stream = loaded(monitored, "seen_worker")
    fault = Fault("Spark's worker frozen", frozenset({"TaskSilent", "NoTask"}), lag=5)  # NoTask: between two leases
    with stopped(owner.members("worker")):
        pipeline.feed.send(table, 5, to=[STREAM])
        monitored.shows(fault, owner, stream)
    pipeline.settle(table)
    monitored.clear(fault)


def test_a_worker_that_is_dead_is_replaced_before_it_need_be_seen(monitored: Monitored) -> None:
    pipeline = monitored.loading
    table, owner, stream = loaded(monitored, "seen_worker_dead")
    owner.kill_member("worker")
    pipeline.feed.send(table, 5, to=[STREAM])
    last = max(offset for *of, offset in pipeline.feed.places(table) if tuple(of) == STREAM)
    monitored.stored("Spark's worker dead", owner, stream, last + 1)
    pipeline.settle(table)


def test_spark_without_its_scratch_folder(running_stack: Stack, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    settings = {"spark": {"lease": "2s", "conf": {"spark.local.dir": str(scratch)}}}
    fault = Fault("Spark's scratch folder removed", frozenset({"TaskFails"}), lag=3)
    with (
        loading(running_stack, tmp_path, "seenscratch", aggregators=1, clusters=1, settings=settings) as pipeline,
        prometheus_of(pipeline, tmp_path / "prometheus") as prometheus,
    ):
        monitored = Monitored(pipeline, prometheus)
        table, owner, stream = loaded(monitored, "seen_scratch")
        with pipeline.feed.flowing(table, to=[STREAM]):
            for folder in scratch.iterdir():
                shutil.rmtree(folder)
            monitored.shows(fault, owner, stream)
            pipeline.wait("the process to end by itself", lambda: owner.exit_code is not None)
        owner.start()
        pipeline.settle(table)
        monitored.clear(fault)


def test_an_open_transaction(monitored: Monitored) -> None:
    pipeline = monitored.loading
    table, owner, stream = loaded(monitored, "seen_transaction")
    fault = Fault("transaction open", frozenset({"OpenTransaction"}), lag=5)
    settings = {"bootstrap.servers": pipeline.stack.kafka["a"].bootstrap, "transactional.id": "seen", "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(pipeline.pipeline.spec.topic, b"never committed", partition=0, headers={"table": table})
    producer.flush(30)
    pipeline.feed.send(table, 4, to=[STREAM])
    assert monitored.shows(fault, owner, stream).lag == 5, "the message that is not committed, and four behind it"
    producer.abort_transaction(30)
    pipeline.settle(table)
    monitored.clear(fault)


def test_a_message_of_an_unknown_revision(monitored: Monitored) -> None:
    pipeline = monitored.loading
    table, owner, stream = loaded(monitored, "seen_revision")
    unknown = frozenset({"RevisionUnknown"})
    fault = Fault("unknown schema revision", unknown, lag=1, alerts=(UNAVAILABLE,), table=table)
    value, headers = pipeline.feed.encode(table, [{"id": 7, "text": "early"}])
    pipeline.feed.raw(value, {**headers, "schema": "2"}, to=STREAM, rows=1)
    monitored.shows(fault, owner, stream)
    pipeline.stack.clickhouse[1, 1].execute(f"ALTER TABLE {table} ADD COLUMN later UInt8 AFTER id")
    pipeline.settle(table)
    monitored.clear(fault)


def test_a_message_of_an_unknown_table(monitored: Monitored) -> None:
    pipeline = monitored.loading
    known, owner, stream = loaded(monitored, "seen_known")
    table = "default.seen_unknown"
    unknown = frozenset({"UnknownTable"})
    fault = Fault("unknown table", unknown, lag=1, alerts=(UNAVAILABLE,), table=table)
    value, headers = pipeline.feed.encode(known, [{"id": 7, "text": "early"}])
    pipeline.feed.raw(value, {**headers, "table": table}, to=STREAM, rows=1)
    monitored.shows(fault, owner, stream)
    create_replicated_table(pipeline.stack, "seen_unknown", "id UInt64, text String", order_by="id")
    pipeline.settle(table)
    monitored.clear(fault)


@pytest.mark.parametrize(
    ("name", "how"), [("Kafka broker frozen", "freeze"), ("one Kafka cluster dead", "kill")], ids=["frozen", "dead"]
)
def test_a_kafka_cluster_that_does_not_answer(monitored: Monitored, name: str, how: str) -> None:
    """How many messages wait cannot be known then, so no lag is shown; the other cluster's streams stay right."""
    pipeline = monitored.loading
    table, owner, stream = loaded(monitored, f"seen_broker_{how}")
    fault = Fault(name, frozenset({"KafkaSilent", "KafkaUnavailable"}), lag=None)
    (broker,) = pipeline.stack.kafka["a"].brokers
    getattr(broker, how)()
    seen = monitored.shows(fault, owner, stream)
    assert seen.standing is not None
    other = pipeline.owner("b", 0).stream(pipeline.stream("b", 0))
    assert other is not None
    assert (other.lag, other.standing) == (0, None)
    pipeline.stack.heal()
    pipeline.settle(table)
    monitored.clear(fault)
