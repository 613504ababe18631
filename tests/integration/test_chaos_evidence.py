"""What a failed chaos run keeps of its servers is enough to ask why a row is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from blockhouse.streams import StreamId
from blockhouse_aggregator.audit import AuditReport
from blockhouse_aggregator.audit.compare import Difference, Example
from blockhouse_aggregator.audit.report import table_result
from e2e.chaos.evidence import keep
from e2e.chaos.verdict import Audited
from e2e.stack import Stack
from tests.integration.clickhouse_blocks import zookeeper
from tests.integration.conftest import TableFactory

pytestmark = pytest.mark.integration


def lacking(table: str, replica: str, rows: int) -> AuditReport:
    missing = Difference(0, 0, rows, 0, (Example(7, rows, 0, None),))
    found = table_result(
        table,
        replica,
        exists=True,
        messages=1,
        rows=rows,
        dead_letters=0,
        differences=[(StreamId("a", "events", 0), missing)],
    )
    return AuditReport("events", (found,))


def test_parts_logs_and_the_tables_tree_are_kept_also_when_a_server_is_unavailable(
    stack: Stack, table: TableFactory, tmp_path: Path
) -> None:
    name = table()
    first, second = stack.clickhouse.values()
    first.execute(f"INSERT INTO {name} (id, text) VALUES", [(1, "x")], insert_quorum=2)
    second.kill()
    with zookeeper(stack) as client:
        keep(stack, [Audited(1, lacking(f"default.{name}", second.replica, 1), 1)], client, tmp_path / "evidence")

    def read(file: str) -> Any:
        return json.loads((tmp_path / "evidence" / file).read_text())

    known = read(f"{first.name}.json")
    assert isinstance(known, dict)
    (part,) = [part["name"] for part in known["parts"] if part["table"] == name]
    if isinstance(known["part_log"], str):  # the stand-in for a current server has none
        assert "part_log" in known["part_log"]
    else:
        assert any(event["part_name"] == part for event in known["part_log"])
    absent = read(f"{second.name}.json")
    assert isinstance(absent, dict)
    assert "refused" in absent["parts"]
    tree = read(f"zookeeper-01-default.{name}.json")
    assert isinstance(tree, dict)
    assert any(path.endswith(f"/replicas/{second.replica}/parts/{part}") for path in tree)
    (audited,) = read("audit.json")
    assert audited["tables"][0]["offenders"][0]["offset"] == 7
    assert (tmp_path / "evidence" / f"{second.name}.server.log").stat().st_size > 0
