"""The demonstration passes only when it has shown something: each missing part alone makes it fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from blockhouse.contract.verifier import Verdict
from blockhouse.metadata import codec
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window
from blockhouse_aggregator.audit import AuditReport, TableResult
from e2e.demo.evidence import Committed
from e2e.demo.faults import Frozen, Killed
from e2e.demo.verdict import judge
from e2e.kit.watch import BlockInFlight
from tests.contract_values import anomaly, coverage, verdict

TABLES = ("default.a", "default.b")
BLOCK = BlockInFlight("a/events/0", "default.a", 100, 109, "inserting")
RECORDED = InFlight(begin=100, end=109, messages=10, revision=1, crc=7, intent_ms=1)


def committed(in_flight: InFlight | None) -> Committed:
    entries = (TableEntry(1, in_flight=in_flight),) if in_flight else ()
    metadata = Metadata("r1", 4, 1, "5S7zMd0pSHq7E8SiOxeEqg", -1, 120, Window(0, 120, 0, 0), entries)
    return Committed(metadata.committed_offset, codec.encode(metadata))


KILLED = Killed("r1", 7.0, BLOCK, rows_stored=100, quorum_pending=True, committed=committed(RECORDED))
FROZEN = Frozen("r2", 30.0, 10.0, streams=2, taken_over=2)


def result(table: str, replica: str, **changes: Any) -> TableResult:
    whole = TableResult(table, replica, True, 5, 50, 0, 50, 0, 0, 0, ())
    return replace(whole, **changes)


WHOLE = [result(table, replica) for table in TABLES for replica in ("r1", "r2")]


def failed(results: list[TableResult] = WHOLE, **changes: Any) -> list[str]:
    """The first words of every check that does not hold, for a run that would pass without `changes`."""
    facts: dict[str, Any] = {
        "replicas": 2,
        "tables": TABLES,
        "rows": 100,
        "killed": [KILLED],
        "frozen": [FROZEN],
        "replays": 3,
        "recognised": 2,
        "streams": 4,
        "verified": verdict(),
    }
    checks = judge(AuditReport("events", tuple(results)), **(facts | changes))
    return [" ".join(check.demand.split()[:2]) for check in checks if not check.holds]


@pytest.mark.parametrize(
    "verified",
    [
        verdict(verdict="anomalies", anomalies=1, latest=anomaly()),
        verdict(verdict="unknown"),
        verdict(streams=3),
        verdict(coverage={"a": coverage(), "b": coverage(unseen=1)}),
        verdict(coverage={"a": coverage(0)}),
    ],
)
def test_a_verifier_that_found_something_or_did_not_see_everything_fails(verified: Verdict) -> None:
    assert failed(verified=verified) == ["the verifier"]


def test_a_run_that_showed_everything_passes() -> None:
    assert failed() == []


@pytest.mark.parametrize("fault", ["missing", "duplicates", "unexpected"])
def test_one_wrong_row_on_one_replica_fails(fault: str) -> None:
    assert failed([*WHOLE[:3], replace(WHOLE[3], **{fault: 1})]) == ["every produced"]


def test_an_audit_of_too_few_tables_replicas_or_rows_is_no_proof() -> None:
    assert failed(WHOLE[:2]) == ["every produced"], "a table is missing"
    assert failed(WHOLE[::2]) == ["every produced"], "a replica is missing"
    assert failed([*WHOLE[:3], replace(WHOLE[3], exists=False)]) == ["every produced"]
    assert failed(rows=101) == ["every produced"], "a row that was produced is not in Kafka"
    assert failed([]) == ["every produced"]


@pytest.mark.parametrize(
    "kill",
    [
        replace(KILLED, committed=committed(None)),
        replace(KILLED, committed=committed(replace(RECORDED, end=110))),
        replace(KILLED, rows_stored=0),
        replace(KILLED, quorum_pending=False),
    ],
    ids=["no intent", "another block's intent", "nothing stored", "the quorum may have been acknowledged"],
)
def test_a_kill_at_another_moment_does_not_count(kill: Killed) -> None:
    assert failed(killed=[kill]) == ["an aggregator"]
    assert failed(killed=[kill, KILLED]) == [], "one at the right moment is enough"


def test_a_run_without_faults_fails() -> None:
    assert failed(killed=[], frozen=[], replays=0, recognised=0) == ["an aggregator", "an aggregator", "a replayed"]


def test_an_unnoticed_freeze_fails() -> None:
    assert failed(frozen=[replace(FROZEN, taken_over=1)]) == ["an aggregator"]
    assert failed(frozen=[replace(FROZEN, streams=0, taken_over=0)]) == ["an aggregator"]


def test_replays_that_were_all_stored_again_fail() -> None:
    assert failed(recognised=0) == ["a replayed"]
