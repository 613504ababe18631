"""An audit in 80 columns: names continue on the next line, no word is broken; and what its last line states."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from blockhouse_aggregator.audit.rendering import render
from blockhouse_aggregator.audit.report import AuditReport, TableResult
from blockhouse_aggregator.audit.values.report import TableValues, ValuesReport

WHOLE = TableResult("default.t", "r1:9000", True, 10, 100, 0, 100, 0, 0, 0, ())
EXACT = AuditReport("events", (WHOLE,), replicas=("r1:9000",), clusters=("b",))


def shown(report: AuditReport, width: int = 80) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(render(report))
    return text.getvalue()


def verdict(report: AuditReport) -> str:
    return shown(report, 1_000).splitlines()[-1]


@pytest.mark.parametrize("rows", [161_903, 1_234_567_890])
def test_no_heading_and_no_number_is_broken_and_no_name_is_cut(rows: int) -> None:
    name, replica = "production.page_visits_by_country", "clickhouse-events-01-b.example:9000"
    result = TableResult(name, replica, True, rows, rows, rows, rows, rows, rows, rows, ())
    values = ValuesReport(rows, rows, (TableValues(name, replica, rows=rows, values=rows),))

    text = shown(AuditReport("events", (result,), values=values))

    heads = ("messages", "rows", "dead letters", "stored", "duplicates", "missing", "unexpected", "values", "wrong")
    words = text.split()
    assert {word for head in heads for word in head.split()} <= set(words)
    assert words.count(f"{rows:,}") >= 9
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    firsts = "".join(line[:20].strip().split(" ")[0] for line in text.splitlines())
    assert name in firsts, "the name continues on the next line"


def test_what_kafka_has_is_stated_once_for_all_replicas() -> None:
    text = shown(replace(EXACT, tables=(WHOLE, replace(WHOLE, replica="r2:9000", stored=99))))

    assert [line.split() for line in text.splitlines() if line.startswith("default.t")] == [
        ["default.t", "10", "100", "0"],
        ["default.t", "r1:9000", "100", "0", "0", "0"],
        ["default.t", "r2:9000", "99", "0", "0", "0"],
    ]


def test_exact_is_only_what_was_compared_whole() -> None:
    partial = replace(EXACT, not_compared={"Kafka cluster a": "no broker answers"})

    assert verdict(EXACT) == "exact: every row once on every replica"
    assert verdict(partial) == (
        "exact in what was compared (Kafka cluster b; replica r1:9000). NOT COMPARED: Kafka cluster a"
    )
    assert "every row" not in shown(partial)
    assert [(r.exact, r.undecided) for r in (EXACT, partial)] == [(True, False), (False, True)]
    assert partial.to_json()["exact"] is False
    assert partial.to_json()["not_compared"] == {"Kafka cluster a": "no broker answers"}


def test_a_fault_in_what_was_compared_is_one_whatever_was_not() -> None:
    wrong = replace(EXACT, tables=(replace(WHOLE, missing=1),), not_compared={"Kafka cluster a": "no broker answers"})

    assert (wrong.exact, wrong.undecided, verdict(wrong)) == (False, False, "NOT EXACT")


def test_rows_that_are_not_loaded_yet_are_not_called_lost() -> None:
    waiting = replace(WHOLE, stored=70, missing=30, waiting=30)

    text = shown(replace(EXACT, tables=(waiting,)), 1_000)
    assert "30 of 30 missing rows are not loaded yet: its messages are at or above the committed offset" in text
    assert verdict(replace(EXACT, tables=(waiting,))).startswith("NOT EXACT YET: ")
    assert "--wait" in verdict(replace(EXACT, tables=(waiting,)))
    for worse in (replace(waiting, missing=31), replace(waiting, duplicates=1), replace(waiting, unexpected=1)):
        assert verdict(replace(EXACT, tables=(waiting, worse))) == "NOT EXACT"
