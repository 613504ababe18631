"""Lag, its reason and what stands still are right within 15 s of a fault, and right again once it has healed."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from blockhouse.contract.aggregator import StreamStatus
from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack
from e2e.stack.tables import create_replicated_table
from tests.integration.runtime_pipeline import NOTHING_MOVES, Loading, eventually, healed, loading

pytestmark = pytest.mark.integration

SHOWN_WITHIN = float(os.environ.get("SHOWN_WITHIN", "60"))
"""Seconds until a fault has to show; 15 on a machine that does nothing else."""
STREAM = ("a", 0)


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(running_stack, tmp_path_factory.mktemp("lag"), "lag", partitions=1, settings=NOTHING_MOVES) as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        yield found
    running.wait("everything right again", lambda: all(right(s) for a in running.aggregators for s in a.streams()))


def right(stream: StreamStatus) -> bool:
    return stream.lag == 0 and stream.lag_seconds == 0 and stream.standing is None


def shown(pipeline: Loading, fault: str, stream: str, reasons: set[str], tables: bool = False) -> StreamStatus:
    """The stream's status once one of the reasons is shown, within SHOWN_WITHIN of now; also on /readyz."""
    began = time.monotonic()
    found: list[StreamStatus] = []

    def look() -> bool:
        for aggregator in pipeline.aggregators:
            seen = aggregator.stream(stream) if aggregator.alive else None
            if seen is None:
                continue
            given = {table.reason for table in seen.lagging_tables} if tables else set()
            given |= {seen.standing.reason} if seen.standing is not None else set()
            if given & reasons and any(reason in aggregator.get("/readyz") for reason in given & reasons):
                found[:] = [seen]
                return True
        return False

    within = eventually(look, SHOWN_WITHIN + 15)
    seconds = time.monotonic() - began
    seen = found[-1] if found else [a.stream(stream) for a in pipeline.aggregators]
    print(f"SHOWN | {fault} | {seen.standing if found else seen} | {seconds:.1f} s")
    assert within, seen
    assert seconds < SHOWN_WITHIN
    return found[-1]


def owner(pipeline: Loading, cluster: str = "a") -> tuple[AggregatorProcess, str]:
    return pipeline.owner(cluster, 0), pipeline.stream(cluster, 0)


@contextmanager
def frozen_worker(aggregator: AggregatorProcess) -> Iterator[None]:
    pids = aggregator.members("worker")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with_signal(pid, signal.SIGCONT)


def with_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def grows(lag: Callable[[], float]) -> bool:
    """Whether what is measured rises by at least 3 from now."""
    first = lag()
    return eventually(lambda: lag() >= first + 3)


def test_a_frozen_replica_shows_as_growing_lag_and_why(pipeline: Loading) -> None:
    table = pipeline.feed.table("frozen_replica")
    pipeline.feed.send(table, 3)
    pipeline.settle(table)
    found, name = owner(pipeline)
    server = next(s for s in pipeline.stack.clickhouse.values() if s.replica == found.replica)
    server.freeze()
    with pipeline.feed.flowing(table, to=[STREAM]):
        seen = shown(pipeline, "frozen replica", name, {"ReplicaUnfit", "InsertFails", "Inserting"})
        assert (seen.lag or 0) > 0
        assert grows(lambda: found.metric("blockhouse_lag_seconds", stream=name))
        assert grows(lambda: found.metric("blockhouse_lag_messages", stream=name))
        server.thaw()
    pipeline.settle(table)


def test_a_hung_worker_shows_as_a_silent_task(pipeline: Loading) -> None:
    table = pipeline.feed.table("hung_worker")
    pipeline.feed.send(table, 3)
    pipeline.settle(table)
    found, name = owner(pipeline)
    with frozen_worker(found):
        pipeline.feed.send(table, 5)
        seen = shown(pipeline, "hung worker", name, {"TaskSilent", "NoTask", "TaskFails", "Inserting"})
        assert (seen.lag or 0) >= 5
        assert grows(lambda: found.metric("blockhouse_lag_seconds", stream=name))
    pipeline.settle(table)


def test_an_open_transaction_shows_although_nothing_behind_it_may_be_read(pipeline: Loading) -> None:
    table = pipeline.feed.table("transaction")
    pipeline.feed.send(table, 3)
    pipeline.settle(table)
    _, name = owner(pipeline)
    topic = pipeline.pipeline.spec.topic
    bootstrap = pipeline.stack.kafka["a"].bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "open", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never committed", partition=0, headers={"table": table})
    producer.flush(30)
    pipeline.feed.send(table, 4, to=[STREAM])
    seen = shown(pipeline, "open transaction", name, {"OpenTransaction"})
    assert seen.lag == 5, "the message that is not committed, and four behind it"
    assert (seen.high_watermark or 0) - (seen.last_stable or 0) == 5
    assert not seen.drained
    producer.abort_transaction(30)
    pipeline.settle(table)


def test_an_unknown_table_and_an_unknown_revision_have_their_reason_and_what_is_pending(pipeline: Loading) -> None:
    known = pipeline.feed.table("reasons_known")
    value, headers = pipeline.feed.encode(known, [{"id": 7, "text": "early"}])
    pipeline.feed.send(known, 2)
    pipeline.settle(known)
    found, name = owner(pipeline)
    pipeline.feed.raw(value, {**headers, "table": "default.reasons_unknown"}, to=STREAM, rows=1)
    seen = shown(pipeline, "unknown table", name, {"UnknownTable"}, tables=True)
    (lagging,) = seen.lagging_tables
    assert (lagging.pending, seen.lag) == (1, 1)
    assert (lagging.distance or 0) >= 1
    labels = {"table": "default.reasons_unknown", "reason": "UnknownTable"}
    assert eventually(lambda: found.metric("blockhouse_table_pending_messages", **labels) == 1)
    pipeline.feed.raw(value, {**headers, "schema": "2"}, to=STREAM, rows=1)
    seen = shown(pipeline, "unknown revision", name, {"RevisionUnknown"}, tables=True)
    assert (seen.lag or 0) >= 2

    create_replicated_table(pipeline.stack, "reasons_unknown", "id UInt64, text String", order_by="id")
    pipeline.stack.clickhouse[1, 1].execute(f"ALTER TABLE {known} ADD COLUMN later UInt8 AFTER id")
    pipeline.settle("default.reasons_unknown", known)
    assert eventually(lambda: found.metric("blockhouse_table_pending_messages") == 0)


def test_a_frozen_broker_shows_and_hides_no_stream_of_the_other_cluster(pipeline: Loading) -> None:
    table = pipeline.feed.table("broker_frozen")
    pipeline.feed.send(table, 3)
    pipeline.settle(table)
    _, name = owner(pipeline)
    _, other = owner(pipeline, "b")
    pipeline.wait("both are right", lambda: all(right(s) for a in pipeline.aggregators for s in a.streams()))
    broker = pipeline.stack.kafka["a"].brokers[0]
    broker.freeze()
    shown(pipeline, "broker frozen", name, {"KafkaSilent", "KafkaUnavailable"})
    healthy = pipeline.owner("b", 0).stream(other)
    assert healthy is not None
    assert right(healthy)
    broker.thaw()
    pipeline.settle(table)


@pytest.mark.long
def test_a_dead_cluster_shows_and_the_series_of_a_stream_end_with_its_owner(pipeline: Loading) -> None:
    table = pipeline.feed.table("cluster_dead")
    pipeline.feed.send(table, 3)
    pipeline.settle(table)
    found, name = owner(pipeline)
    assert eventually(lambda: sum(a.metric("blockhouse_stream_owned", stream=name) for a in pipeline.aggregators) == 1)
    pipeline.wait("all is right", lambda: all(right(s) for a in pipeline.aggregators for s in a.streams()))
    pipeline.stack.kafka["a"].brokers[0].kill()
    shown(pipeline, "cluster dead", name, {"KafkaSilent", "KafkaUnavailable"})
    pipeline.stack.kafka["a"].brokers[0].start()
    pipeline.settle(table)
    found.terminate()
    assert eventually(lambda: found.exit_code is not None)
    peer = pipeline.peer(found)
    pipeline.wait("the other one owns it", lambda: peer.metric("blockhouse_stream_owned", stream=name) == 1)
    found.start()
    assert found.metric("blockhouse_lag_messages", stream=name) == 0


def test_a_spark_without_its_scratch_folder_shows_before_the_process_ends(running_stack: Stack, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    settings = {"spark": {"lease": "2s", "conf": {"spark.local.dir": str(scratch)}}}
    with loading(running_stack, tmp_path, "lagscratch", aggregators=1, clusters=1, settings=settings) as found:
        table = found.feed.table("scratched_lag")
        found.feed.send(table, 3)
        found.wait("the rows", lambda: all(s.drained for a in found.aggregators for s in a.streams()))
        for folder in scratch.iterdir():
            shutil.rmtree(folder)
        (aggregator,) = found.aggregators
        with found.feed.flowing(table, to=[STREAM]):
            found.wait("a lease to fail", lambda: bool(aggregator.logged("lease.failed")))
            seen = shown(found, "Spark's scratch folder removed", found.stream("a", 0), {"TaskFails"})
        assert (seen.lag or 0) > 0
