"""A real verifier on real Kafka, and a rogue who commits what no owner would: each anomaly is reported within 10 s.

The rogue commits from outside of any group membership into an empty group; the verifier sees the same records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from blockhouse.contract.verifier import WATCHING, AnomalyReport
from blockhouse.metadata import codec
from blockhouse.metadata.model import Metadata, Window
from e2e.pipeline import VerifierProcess
from e2e.stack import Stack
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from tests.integration.conftest import Names, TopicFactory
from tests.integration.verifier_rogue import Rogue, block, config, sound, topic_id

pytestmark = pytest.mark.integration
DETECTION = 10.0
"""Seconds within which an anomaly has to be reported."""


@pytest.fixture
def port() -> Iterator[int]:
    ports = Ports()
    yield ports["verifier"]
    ports.release()


Start = Callable[..., VerifierProcess]


@pytest.fixture
def watched(
    stack: Stack, names: Names, topic: TopicFactory, port: int, tmp_path: Path
) -> Iterator[tuple[Rogue, Start]]:
    name = topic(1)
    rogue = Rogue(stack, "a", name, names.group)
    started: list[VerifierProcess] = []

    def start(**more: Any) -> VerifierProcess:
        started.append(VerifierProcess("verifier", tmp_path / "verifier", config(stack, names, name, port, **more)))
        started[-1].start()
        return started[-1]

    yield rogue, start
    rogue.close()
    for process in started:
        process.kill()


@contextmanager
def reported_in_time(verifier: VerifierProcess, **values: Any) -> Iterator[list[AnomalyReport]]:
    """Runs the body, then waits until exactly such an anomaly is reported; the list has it."""
    found: list[AnomalyReport] = []
    yield found
    begun = time.monotonic()
    assert wait_until(lambda: bool(verifier.anomalies(**values)), timeout=DETECTION), (values, verifier.anomalies())
    print(f"{values}: reported after {time.monotonic() - begun:.2f} s")
    found += verifier.anomalies(**values)


def state_of(verifier: VerifierProcess, cluster: str) -> str:
    verdict = verifier.verdict()
    return verdict.coverage[cluster].state if verdict is not None else "silent"


def remembered(verifier: VerifierProcess) -> str | None:
    verdict = verifier.verdict()
    return verdict.coverage["a"].remembered if verdict is not None else None


def after(last: Metadata, **changes: Any) -> Metadata:
    return replace(last, seq=last.seq + 1, **changes)


CASES: dict[str, tuple[Callable[[Metadata], tuple[int, str]], dict[str, Any]]] = {}


def case(kind: str, table: str | None, first: int, last: int) -> Callable[[Callable[[Metadata], Any]], None]:
    def register(make: Callable[[Metadata], Any]) -> None:
        def made(metadata: Metadata) -> tuple[int, str]:
            result = make(metadata)
            return (result.committed_offset, codec.encode(result)) if isinstance(result, Metadata) else result

        CASES[make.__name__] = (made, {"kind": kind, "table": table, "first": first, "last": last})

    return register


@case("backward", None, 36, 39)
def position_back(m: Metadata) -> Metadata:
    return after(m, position=36, window=Window(0, 34), tables=(m.tables[1],))


@case("overlap", "1", 38, 39)
def block_overlapping(m: Metadata) -> Metadata:
    return after(m, position=44, window=Window(0, 42), tables=(block(1, 38, 43, 4), m.tables[1]))


@case("gap", None, 30, 49)
def messages_in_no_block(m: Metadata) -> Metadata:
    return after(m, position=50, window=Window(0, 48))


@case("gap", "2", 35, 39)
def pending_forgotten(m: Metadata) -> Metadata:
    return after(m, window=Window(0, 40), tables=(m.tables[0],))


@case("foreign", None, 5, 5)
def reset_by_a_tool(m: Metadata) -> tuple[int, str]:
    return 5, ""


@case("foreign", None, 30, 33)
def offset_of_another_metadata(m: Metadata) -> tuple[int, str]:
    return 33, codec.encode(after(m))


@case("order", None, 40, 40)
def number_skipped(m: Metadata) -> Metadata:
    return replace(m, seq=m.seq + 5)


@case("interleaved", None, 30, 39)
def two_owners(m: Metadata) -> Metadata:
    return replace(m, replica="r2")


@case("restart", None, 0, 39)
def started_afresh(m: Metadata) -> Metadata:
    return replace(m, seq=1, position=0, window=Window(0), tables=())


@case("unreadable", None, 30, 30)
def altered(m: Metadata) -> tuple[int, str]:
    return 30, codec.encode(after(m)).replace("r1", "r7")


@case("beyond-end", None, 60, 999)
def beyond_the_log(m: Metadata) -> Metadata:
    return after(m, position=1_000, window=Window(0, 38, holes=960))


@pytest.mark.parametrize("name", CASES)
def test_each_anomaly_is_reported_with_the_evidence(watched: tuple[Rogue, Start], name: str) -> None:
    rogue, start = watched
    verifier = start()
    last = sound(rogue)
    assert verifier.settled().verdict == "clean"
    make, expected = CASES[name]

    with reported_in_time(verifier, **expected) as reported:
        _, text = rogue.commit(*make(last))

    (anomaly,) = reported
    assert (anomaly.stream, anomaly.after) == (rogue.stream, text)
    assert anomaly.before == (text if anomaly.kind == "beyond-end" else codec.encode(last))
    assert verifier.verdict().verdict == "anomalies"
    logged = [json.loads(line) for line in verifier.log.read_text().splitlines() if '"event": "anomaly"' in line]
    assert anomaly.id in {line["id"] for line in logged}


def test_a_stall_is_reported_and_ends_when_the_stream_continues(watched: tuple[Rogue, Start]) -> None:
    rogue, start = watched
    verifier = start(stalledAfter="2s")
    last = sound(rogue)

    with reported_in_time(verifier, kind="stalled", table=None, first=40, last=59):
        rogue.produce(0)
    assert {a.table for a in verifier.anomalies(kind="stalled")} == {None, "1", "2"}

    rogue.owner(after(last, position=60, window=Window(0, 58, holes=0, dead=2), tables=(block(1, 40, 59, 20),)))
    assert wait_until(lambda: not verifier.anomalies(kind="stalled", table=None), timeout=DETECTION)


def test_what_was_found_survives_a_kill_and_what_happened_meanwhile_is_judged(watched: tuple[Rogue, Start]) -> None:
    rogue, start = watched
    verifier = start()
    last = sound(rogue)
    with reported_in_time(verifier, kind="order"):
        rogue.owner(replace(last, seq=8))
    (first,) = verifier.anomalies()
    assert wait_until(lambda: (remembered(verifier) or "") > first.found, timeout=DETECTION)
    verifier.kill()
    rogue.owner(replace(last, seq=9))
    rogue.owner(replace(last, seq=12))

    verifier.start()

    found = verifier.settled()
    assert [a.after for a in verifier.anomalies()] == [rogue.history[-1][1], first.after]
    assert verifier.anomalies()[1] == first
    assert found.coverage["a"].commits == len(rogue.history), "each was read once"


def test_a_lost_cluster_makes_the_verdict_unknown_until_it_is_back(stack: Stack, watched: tuple[Rogue, Start]) -> None:
    rogue, start = watched
    verifier = start(lostAfter="2s")
    last = sound(rogue)
    assert verifier.settled().verdict == "clean"
    (broker,) = stack.kafka["b"].brokers

    broker.freeze()
    assert wait_until(lambda: (found := verifier.verdict()) is not None and found.verdict == "unknown", timeout=60)
    with reported_in_time(verifier, kind="order"):
        rogue.owner(replace(last, seq=9))
    broker.thaw()

    assert wait_until(
        lambda: (found := verifier.verdict()) is not None and found.coverage["b"].state == WATCHING, timeout=90
    )


def test_a_topic_that_is_deleted_and_created_again_is_no_anomaly(stack: Stack, watched: tuple[Rogue, Start]) -> None:
    rogue, start = watched
    verifier = start()
    sound(rogue)
    assert verifier.settled().verdict == "clean"
    admin = AdminClient({"bootstrap.servers": stack.kafka["a"].bootstrap})
    admin.delete_topics([rogue.topic])[rogue.topic].result(60)
    assert wait_until(lambda: rogue.topic not in admin.list_topics(timeout=5).topics, timeout=60)
    stack.kafka["a"].create_topic(rogue.topic, partitions=1)
    for _ in range(3):  # reads a log that ends far below the old topic's position
        verifier.settled()

    rogue.produce(30)
    rogue.owner(Metadata("r1", 1, 1_000, topic_id(stack, rogue.topic), 0, 20, Window(0, 20), (block(1, 0, 19, 20),)))

    assert verifier.settled().verdict == "clean", verifier.anomalies()
    assert '"event": "anomaly"' not in verifier.log.read_text(), "not even for a moment"
