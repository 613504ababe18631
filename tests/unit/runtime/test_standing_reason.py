"""The reason of a stream that stands still stays the same for as long as its cause does: it is a label of an alert."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.metadata.model import InFlight, Window
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState
from blockhouse_aggregator.runtime.process import standing
from blockhouse_aggregator.runtime.process.standing import LagContext, why_stream

BLOCK = Block(InFlight(12, 19, 8, 1, 0, 5), Stage.INSERTING, fresh=True)
MAX_AGE = 1.0


def owner_of(*, present: bool, heard: float, failure: str = "") -> Any:
    """A stream whose insert fails, with or without a task at this moment."""
    return SimpleNamespace(
        stop=None,
        state=StreamState("r1", 2, "id", 0, 7, 30, Window(), 0, (TableState(7, block=BLOCK),)),
        task=SimpleNamespace(present=present, heard=heard, failure=failure, trouble=None),
        context=SimpleNamespace(
            config=SimpleNamespace(blocks=SimpleNamespace(max_age=MAX_AGE, tables={})),
            catalog=SimpleNamespace(name=lambda table: "d.t", known=lambda name: None),
        ),
        report=SimpleNamespace(troubles={"d.t": "no quorum"}),
    )


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        (owner_of(present=True, heard=100), "InsertFails"),
        (owner_of(present=False, heard=100), "InsertFails"),
        (owner_of(present=False, heard=100 - MAX_AGE - standing.SILENT_TASK - 1), "NoTask"),
        (owner_of(present=False, heard=100, failure="no room"), "TaskFails"),
    ],
    ids=["a task works", "between two leases", "no task for long", "the last task failed"],
)
def test_a_moment_between_two_leases_is_no_reason(owner: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "loop_time", lambda: 100.0)
    assert why_stream(owner, LagContext(), None)[0] == reason


@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        ("no quorum", "d.t: no quorum"),
        (
            "clickhouse c:9000, table d.t: ClickHouse error 285: x",
            "clickhouse c:9000, table d.t: ClickHouse error 285: x",
        ),
    ],
)
def test_a_table_is_named_once(trouble: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "loop_time", lambda: 100.0)
    owner = owner_of(present=True, heard=100)
    owner.report.troubles["d.t"] = trouble
    assert why_stream(owner, LagContext(), None) == ("InsertFails", text)
