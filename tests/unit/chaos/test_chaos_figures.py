"""Recovery times, memory slopes and the verdict, from hand-made observations."""

from __future__ import annotations

from typing import Any

import pytest

from blockhouse.contract.aggregator import Phase
from blockhouse_aggregator.audit import AuditReport
from blockhouse_aggregator.audit.report import TableResult
from e2e.chaos.figures import memory, recoveries, recovery
from e2e.chaos.injecting import Injected
from e2e.chaos.observing import Resident, Sample
from e2e.chaos.scenario import Fault, Kind
from e2e.chaos.verdict import Audited, judge
from tests.contract_values import anomaly, block, coverage, page, stream
from tests.contract_values import verdict as verdict_of

RATE = 100.0
KILL = Fault(at=10, kind=Kind.KILL, target="aggregator-r1", seconds=5)
OLD, NEW = ("r1", 11), ("r2", 22)


def samples(*lags: int, owner_changes_at: float = 1e9) -> list[Sample]:
    """One a second from 0."""
    return [Sample(float(at), (lag,), {"a/t/0": OLD if at < owner_changes_at else NEW}) for at, lag in enumerate(lags)]


def test_a_run_has_recovered_when_the_lag_is_low_for_good() -> None:
    lags = [50] * 10 + [100] * 3 + [400] * 4 + [200, 900, 250, 100, 100, 100, 100]
    found = recovery(Injected(KILL, 10, 15, "aggregator-r1"), samples(*lags, owner_changes_at=16), RATE)
    assert (found.from_begin, found.from_end, found.takeover, found.lag_peak) == (9, 4, 6, 900)


def test_an_unnoticed_fault_was_recovered_from_at_once() -> None:
    found = recovery(Injected(KILL, 10, 15, "aggregator-r1"), samples(*[50] * 30), RATE)
    assert (found.from_begin, found.from_end, found.lag_peak) == (0, 0, 50)


def test_a_stream_without_an_owner_is_a_disturbance_before_it_shows_in_the_lag() -> None:
    seen = [Sample(float(at), (50,), {}, unowned=1 if 11 <= at < 18 else 0) for at in range(30)]
    found = recovery(Injected(KILL, 10, 15, "aggregator-r1"), seen, RATE)
    assert (found.from_begin, found.from_end) == (8, 3)
    assert recovery(Injected(KILL, 10, 15, "aggregator-r1"), seen[:18], RATE).from_begin is None


def test_what_comes_after_the_next_fault_is_not_laid_to_the_first() -> None:
    faults = [Injected(KILL, 10, 15), Injected(KILL, 20, 25)]
    one, two = recoveries(faults, samples(*[50] * 12, 400, *[50] * 10, 700, 700, *[50] * 10), RATE)
    assert (one.from_begin, one.lag_peak) == (3, 400)
    assert (two.from_begin, two.lag_peak) == (5, 700)
    assert recoveries(faults, samples(*[400] * 22, *[50] * 9), RATE)[0].from_begin is None


def test_what_comes_in_the_pause_before_the_next_fault_is_laid_to_none() -> None:
    faults = [Injected(KILL, 10, 15), Injected(KILL, 20, 25)]
    seen = samples(*[50] * 12, 400, *[50] * 5, 400, *[50] * 12)
    assert recoveries(faults, seen, RATE)[0].from_begin == 9
    assert recoveries(faults, seen, RATE, pause=3)[0].from_begin == 3


def test_a_lag_that_never_falls_is_no_recovery() -> None:
    found = recovery(Injected(KILL, 10, 15, "aggregator-r1"), samples(*[50] * 10, *[400] * 20), RATE)
    assert (found.from_begin, found.takeover) == (None, None)


def test_only_a_killed_aggregator_has_a_takeover() -> None:
    frozen = KILL.model_copy(update={"kind": Kind.FREEZE})
    found = recovery(Injected(frozen, 10, 15, "aggregator-r1"), samples(*[50] * 30, owner_changes_at=12), RATE)
    assert found.takeover is None


def test_memory_is_judged_after_the_first_minute_of_the_longest_life() -> None:
    growing = [Resident(float(at), "kafka-a", 1, 100_000_000 + at * 1_000_000) for at in range(0, 300, 5)]
    short = [Resident(float(at), "kafka-a", 2, 5) for at in range(300, 340, 5)]
    warming = [Resident(float(at), "zookeeper", 3, min(at, 60) * 1_000_000) for at in range(0, 300, 5)]
    kafka, zookeeper = memory(growing + short + warming)
    assert kafka.slope == pytest.approx(3600)
    assert zookeeper.slope == pytest.approx(0)
    assert memory(short)[0].slope is None


def report(*, missing: int = 0, duplicates: int = 0, replicas: int = 2) -> AuditReport:
    tables = tuple(
        TableResult("db.t", f"r{n}", True, 10, 100, 0, 100 - missing + duplicates, duplicates, missing, 0, ())
        for n in range(1, replicas + 1)
    )
    return AuditReport("events", tables)


CLEAN, ALARMED = verdict_of(), verdict_of(verdict="anomalies")
STOOD = anomaly("stalled", message="nothing scanned for 300 s", ended="12:00")
BLOCKED = stream(in_flight=(block(stage="blocked", reason="CrcDiffers"),))


def verdict(found: AuditReport | None = None, **changes: Any) -> list[str]:
    """What did not hold."""
    given: dict[str, Any] = {
        "replicas": 2,
        "tables": ["db.t"],
        "replays": 3,
        "surplus": 0,
        "faults": [Injected(KILL, 10, 15)],
        "statuses": {},
        "verified": CLEAN,
        "anomalies": [],
        "crashes": [],
    }
    audits = [Audited(1, found or report(), changes.pop("rows", 100))]
    return [check.demand for check in judge(audits, **{**given, **changes}) if not check.holds]


def test_an_exact_run_under_fire_passes() -> None:
    assert verdict() == []


def test_a_stream_that_stood_still_and_continued_is_no_anomaly_of_the_protocol() -> None:
    assert verdict(verified=ALARMED, anomalies=[STOOD]) == []


def test_a_run_that_demands_no_replay_passes_without() -> None:
    assert verdict(replays=None) == []


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({"found": report(missing=1)}, "every produced row"),
        ({"found": report(duplicates=1)}, "every produced row"),
        ({"found": report(replicas=1)}, "every produced row"),
        ({"rows": 101}, "every produced row"),
        ({"tables": ["db.t", "db.other"]}, "every produced row"),
        ({"replays": 0}, "at least one block was replayed"),
        ({"surplus": 1}, "no aggregator found rows stored twice"),
        ({"faults": []}, "every fault was carried out"),
        ({"faults": [Injected(KILL, 1, 2, error="no root")]}, "every fault was carried out"),
        ({"verified": ALARMED, "anomalies": [anomaly("stalled")]}, "the verifier found no anomaly"),
        ({"verified": ALARMED, "anomalies": [STOOD, anomaly("gap", ended="12:00")]}, "the verifier found no anomaly"),
        ({"verified": ALARMED}, "the verifier found no anomaly"),
        ({"verified": verdict_of(verdict="unknown")}, "the verifier found no anomaly"),
        ({"verified": verdict_of(streams=3)}, "the verifier found no anomaly"),
        ({"verified": verdict_of(coverage={"a": coverage(0)})}, "the verifier found no anomaly"),
        ({"crashes": ["r1: boom"]}, "no aggregator failed internally"),
        ({"statuses": {"r1": page(stream(state=Phase.STOPPED)), "r2": None}}, "everything resumed"),
        ({"statuses": {"r1": page(BLOCKED)}}, "everything resumed"),
    ],
)
def test_a_run_fails_for_every_loss_and_for_want_of_harm(change: dict[str, Any], failed: str) -> None:
    (unmet,) = verdict(**change)
    assert unmet.startswith(failed)


def test_each_shard_is_audited_by_itself_and_the_verifier_has_seen_the_streams_of_both() -> None:
    given: dict[str, Any] = {"replicas": 2, "tables": ["db.t"], "replays": 3, "surplus": 0, "statuses": {}}
    given |= {"faults": [Injected(KILL, 10, 15)], "anomalies": [], "crashes": []}
    first, second = Audited(1, report(), 100), Audited(2, report(), 90)
    checks = judge([first, second], verified=verdict_of(streams=8), **given)
    (lost,) = [check.demand for check in checks if not check.holds]
    assert lost.endswith("on every replica of shard 2")
    (unseen,) = [check for check in judge([first, first], verified=CLEAN, **given) if not check.holds]
    assert "4 of 8 streams" in unseen.found
