"""What a driver shows: one truth for people, the operator and Prometheus."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from blockhouse.contract.mirror import MirrorStatus
from blockhouse_mirror.protocol.takeover import Reason, Stop
from blockhouse_mirror.runtime import discovering as module
from blockhouse_mirror.runtime import status as shown
from blockhouse_mirror.runtime.driver import Driver
from blockhouse_mirror.runtime.http import MirrorServer
from blockhouse_mirror.runtime.status import registry_of, status_of
from tests.unit.mirror.driving import Clusters, P, Q, driver_of


@pytest.fixture
async def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Two partitions: of `t/0` a task has a grant and 80 records are behind since 20 s, `t/1` is stopped."""
    monkeypatch.setattr(module, "boot_time", lambda: 100.0)
    monkeypatch.setattr(shown, "boot_time", lambda: 100.0)
    made = driver_of(Clusters(), monkeypatch)
    await made.discovering.take_over()
    made.assigner.decide(frozenset({P, Q}), {})
    held, stopped = made.mirrored.partitions.get(P), made.mirrored.partitions.get(Q)
    assert held is not None
    assert stopped is not None
    made.mirrored.ownership.granted(P, made.assigner.assignment.owners()[P])
    held.lateness.seen(80.0, 90)
    held.count(1, 7, 700, 2, 1)
    stopped.stop = Stop(Reason.RETENTION, "gone")
    stopped.skipped = 3
    made.mirrored.errors["load"] = "no answer"
    made.reports.acknowledged, made.reports.latency_sum = 4, 2.0
    return made


def metrics(driver: Driver) -> dict[str, float]:
    lines = generate_latest(registry_of(driver)).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_the_status_has_what_a_person_asks_for(driver: Driver) -> None:
    found = status_of(driver)

    assert (found.mirror, found.source, found.target, found.delivery) == ("m", "a", "b", "EffectivelyOnce")
    (task,) = found.tasks
    assert (task.running, task.partitions, task.bytes_per_second) == (False, 2, 2.0 * (50 << 10))
    held, stopped = found.partitions
    assert (held.topic, held.partition, held.task, held.holder) == ("t", 0, task.name, task.name)
    assert (held.position, held.end, held.lag_seconds) == (10, 90, 20.0)
    assert (held.records, held.bytes, held.left_out, held.dead_letters) == (7, 700, 2, 1)
    assert (stopped.holder, stopped.stopped, stopped.message, stopped.skipped) == ("", "RetentionOvertook", "gone", 3)
    assert (found.load_age_seconds, found.latency_seconds, found.errors) == (None, 0.5, {"load": "no answer"})


def test_the_status_survives_its_way_over_http(driver: Driver) -> None:
    found = status_of(driver)

    assert MirrorStatus.parse(found.written()) == found


def test_what_keeps_a_target_topic_from_being_like_its_source_is_an_error(driver: Driver) -> None:
    assert driver.mirrored.discovery is not None
    driver.mirrored.discovery = replace(driver.mirrored.discovery, problems={"t": "refused"})

    assert status_of(driver).errors == {"load": "no answer", "t": "refused"}


def test_metrics_agree_with_the_status(driver: Driver) -> None:
    found = metrics(driver)

    expected = {
        "records_total": 7,
        "bytes_total": 700,
        "left_out_total": 2,
        "dead_letters_total": 1,
        "skipped_total": 3,
        "acknowledged_total": 4,
        "latency_seconds_total": 2,
        "lag_seconds": 20,
        "lag_records": 80,
        "partitions": 2,
        "partitions_held": 1,
        "tasks": 1,
        "tasks_running": 0,
        "assignment_ratio": 1,
        "moved_partitions_total": 0,
        "offending_partitions": 0,
        'stopped{reason="RetentionOvertook"}': 1,
    }
    assert {name: found.get(f"blockhouse_mirror_{name}") for name in expected} == expected
    assert "blockhouse_mirror_load_age_seconds" not in found, "nothing was measured"


def test_no_counter_falls_when_topics_are_deleted(driver: Driver) -> None:
    counters = {name: value for name, value in metrics(driver).items() if name.endswith("_total")}
    assert driver.mirrored.discovery is not None

    driver.mirrored.partitions.seen(replace(driver.mirrored.discovery, topics=()))

    found = metrics(driver)
    assert found["blockhouse_mirror_partitions"] == 0
    assert {name: found[name] for name in counters} == counters
    assert counters["blockhouse_mirror_bytes_total"] == 700


def test_the_page_has_every_metric_and_no_other(driver: Driver) -> None:
    driver.assigner.sampled_at = 0.0
    there = {name.partition("{")[0] for name in metrics(driver)} | {"blockhouse_mirror_rebalances_total"}
    page = (Path(__file__).parents[3] / "docs" / "mirror.md").read_text()

    assert set(re.findall(r"`(blockhouse_mirror_\w+)`", page)) == there


def test_a_partition_that_is_stopped_does_not_hide_how_late_the_others_are(driver: Driver) -> None:
    stopped = driver.mirrored.partitions.get(Q)
    assert stopped is not None
    stopped.lateness.seen(10.0, 5)

    assert metrics(driver)["blockhouse_mirror_lag_seconds"] == 20


async def test_it_is_ready_once_topics_are_known(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MirrorServer(driver).readiness().good

    fresh = driver_of(Clusters(), monkeypatch)
    fresh.mirrored.errors["discovery"] = "a does not answer"
    answer = MirrorServer(fresh).readiness()

    assert (answer.good, answer.text) == (False, "a does not answer")
