"""The table of an audit in 80 columns: names continue on the next line, none is cut."""

from __future__ import annotations

import io

from rich.console import Console

from blockhouse_aggregator.audit.report import AuditReport, TableResult


def test_no_name_is_cut() -> None:
    name, replica = "production.page_visits_by_country", "clickhouse-events-01-b.example:9000"
    result = TableResult(name, replica, True, 123_456, 1_234_560, 0, 1_234_560, 0, 0, 0, ())
    text = io.StringIO()

    Console(file=text, width=80).print(AuditReport("events", (result,)).render())

    rows = [line.split("│") for line in text.getvalue().splitlines() if line.count("│") > 8]
    assert "".join(row[1].strip() for row in rows) == name
    assert "".join(row[2].strip() for row in rows) == replica
    assert "…" not in text.getvalue()
