"""Registering a table that exists: its columns are those that an aggregator records, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from blockhouse.errors import Retryable
from blockhouse.schema.history import extend
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse_aggregator.commands import schema_add
from blockhouse_aggregator.commands.schema_add import recorded
from blockhouse_aggregator.commands.schema_apply import _lines
from blockhouse_aggregator.rollout.change import plan
from blockhouse_aggregator.rollout.change import recorded as known_to_any
from tests.contract_values import page
from tests.contract_values import table as table_status

NEW = TableHistory(id=7, name="d.t")
RECORDED = extend(NEW, [ServerColumn(name="id", type="UInt64")])


class Store:
    """Answers as the schema history does, whose table gets its columns after so many questions."""

    def __init__(self, *answers: TableHistory) -> None:
        self._answers = list(answers)

    def ensure_id(self, name: str) -> TableHistory:
        assert name == "d.t"
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_add, "POLL", 0.001)


def test_it_waits_for_the_aggregator_that_records_the_columns() -> None:
    store: Any = Store(NEW, NEW, RECORDED)
    assert recorded(store, "d.t", 30.0) == RECORDED.current


def test_a_table_that_no_aggregator_records_is_not_called_registered() -> None:
    store: Any = Store(NEW)
    with pytest.raises(Retryable, match=r"no aggregator recorded its columns in 0\.01 s"):
        recorded(store, "d.t", 0.01)


def test_a_table_as_stated_that_is_not_recorded_is_named_by_apply() -> None:
    as_stated = plan({})
    assert not known_to_any("d.t", {"x:1": page(), "x:2": page(tables=(table_status(revision=0),))})
    assert known_to_any("d.t", {"x:1": page(), "x:2": page(tables=(table_status(revision=1),))})
    assert "not recorded" in next(_lines("d.t", as_stated, unrecorded=True))
    assert "not recorded" not in next(_lines("d.t", as_stated, unrecorded=False))
