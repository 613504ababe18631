"""What a repair prints, and with which exit code it ends."""

from __future__ import annotations

import numpy as np
import pytest

from blockhouse.metadata.model import InFlight, TableEntry
from blockhouse_aggregator.repair.filling import Refused
from blockhouse_aggregator.repair.judging import Judged, TableJudged, Verdict
from blockhouse_aggregator.repair.report import RepairReport
from blockhouse_aggregator.repair.survey import Surveyed
from tests.unit.repair.test_filling import standing


def report(*verdicts: Verdict, begin: int = 10, before: int | None = None, refused: int = 0) -> RepairReport:
    """Of one table with a message of two rows for each verdict, from offset 10 on."""
    count = len(verdicts)
    found = np.array(verdicts, np.int8)
    lacking = np.where(found == Verdict.MISSING, 2, 0)
    judged = Judged(np.arange(10, 10 + count), np.full(count, 2), lacking, found)
    why = {Verdict.UNKNOWN: ("MergingEngine", "it merges rows")}
    table = TableJudged("default.t", judged, why)
    entry = TableEntry(4, InFlight(90, 95, 3, 1, 0, 0))
    surveyed = Surveyed(10, 10 + count, (table,), {}, 0)
    failures = [Refused("default.t", 10, 11, "NotStored", "no quorum")] * refused
    return RepairReport(
        standing(100, entry), begin, surveyed, None if before is None else {"default.t": before}, failures
    )


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (report(Verdict.LOADED, Verdict.DEAD), 0),
        (report(Verdict.LOADED, Verdict.NOT_DONE), 0),
        (report(Verdict.LOADED, Verdict.MISSING), 1),
        (report(Verdict.MISSING, Verdict.UNKNOWN), 1),
        (report(Verdict.LOADED, Verdict.UNKNOWN), 3),
        (report(Verdict.LOADED, Verdict.REMOVED), 3),
        (report(Verdict.LOADED, Verdict.AMBIGUOUS), 3),
        (report(Verdict.LOADED, begin=5), 3),
        (report(Verdict.LOADED, before=1), 0),
        (report(Verdict.LOADED, before=1, refused=1), 1),
    ],
)
def test_the_exit_code_is_of_what_is_known(found: RepairReport, code: int) -> None:
    assert found.exit_code == code


def test_ranges_are_those_that_the_command_takes() -> None:
    verdicts = (Verdict.MISSING, Verdict.MISSING, Verdict.LOADED, Verdict.UNKNOWN)
    found = report(*verdicts, begin=5, before=5).to_json()
    (table,) = found["tables"]
    assert found["notInTheLog"] == {"from": 5, "to": 10}
    assert (table["missing"], table["missingRows"], table["filled"]) == (2, 4, 3)
    assert table["ranges"] == [{"from": 10, "to": 12, "messages": 2, "rows": 4}]
    assert [(each["reason"], each["ranges"][0]["from"]) for each in table["notJudged"]] == [("MergingEngine", 13)]


def test_a_person_is_shown_the_ranges_and_every_reason() -> None:
    text = "\n".join(report(Verdict.MISSING, Verdict.NOT_DONE, Verdict.UNKNOWN, begin=5, refused=1).lines())
    assert "missing [10, 11): 1 messages, 2 rows" in text
    for reason in ("NotDone", "MergingEngine", "LogBeginsLater", "NotStored"):
        assert f"{reason}" in text
