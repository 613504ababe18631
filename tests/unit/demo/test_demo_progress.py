"""What people read while it runs and at the end."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from blockhouse_aggregator.audit import AuditReport, TableResult
from e2e.demo.ending import show_audit, show_next, with_names
from e2e.demo.progress import Rate, brief
from e2e.kit.watch import BlockInFlight, Seen


def console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=100), out


def test_a_rate_is_taken_over_the_last_seconds_only() -> None:
    rate = Rate(over=5)

    assert rate.per_second(0, 1_000) == 0, "one point is no rate"
    assert rate.per_second(5, 2_000) == pytest.approx(200)
    assert rate.per_second(10, 2_000) == 0, "nothing came within the last five seconds"


def test_an_aggregator_is_described_in_a_few_words() -> None:
    blocks = (BlockInFlight("a/t/0", "db.t", 1, 2, "inserting"),)
    working = Seen("r1", "ready", {"a/t/0": "REPLAY", "b/t/0": "CONSUME"}, {}, {}, blocks, frozenset())

    assert brief(working) == "CONSUME 1, REPLAY 1, in flight 1"
    assert brief(Seen("r1", "frozen", {}, {}, {}, (), frozenset())) == "frozen"


def test_the_audit_has_a_line_per_table_and_a_column_per_replica() -> None:
    results = tuple(TableResult("default.a", r, True, 5, 1_050, 0, 1_050, 0, 0, 0, ()) for r in ("h:1", "h:2"))
    report = with_names(AuditReport("events", results), {"h:1": "r1", "h:2": "r2"})
    shown, out = console()

    show_audit(shown, report)

    (line,) = [line for line in out.getvalue().splitlines() if "default.a" in line]
    assert line.strip("│ ").replace("│", "").split() == ["default.a", "5", "1,050", "1,050", "1,050", "0", "0"]
    assert "on r1" in out.getvalue()


def test_an_audit_that_is_not_exact_names_the_replica(tmp_path: Path) -> None:
    results = (TableResult("default.a", "r2", True, 5, 50, 0, 40, 0, 10, 0, ()),)
    shown, out = console()

    show_audit(shown, AuditReport("events", results))

    assert "default.a on r2" in out.getvalue()
    assert "NOT EXACT" in out.getvalue()


@pytest.mark.parametrize("kept", [True, False])
def test_servers_are_offered_again_only_when_their_data_was_kept(kept: bool) -> None:
    shown, out = console()

    show_next(shown, Path("/run/demo"), kept, [], {1: "default.a"})

    assert ("blockhouse stack up --folder /run/demo/stack" in out.getvalue()) is kept
