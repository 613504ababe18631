"""What `blockhouse streams resolve|recut` reports as stored of a block stays stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from tenacity import stop_after_attempt, wait_none

from blockhouse.errors import Retryable
from blockhouse_aggregator.clickhouse.presence import Origin, StoredRows
from blockhouse_aggregator.clickhouse.quorum import QuorumProbe, QuorumSnapshot
from blockhouse_aggregator.commands import block_decisions
from tests.unit.runtime.test_storing import BLOCK, FULL

CALM, WAITS, FAILED = QuorumSnapshot(False, 1), QuorumSnapshot(True, 1), QuorumSnapshot(False, 2)
ROWS = StoredRows({3: 1}, None)
Asked = Callable[..., StoredRows]


class Probe:
    """Answers with one snapshot after the other."""

    def __init__(self, snapshots: Sequence[QuorumSnapshot]) -> None:
        self.left = list(snapshots)

    def snapshot(self, _: str) -> QuorumSnapshot:
        return self.left.pop(0)

    def failed_parts(self, _: str) -> tuple[str, ...]:
        return ("all_1_1_0",)


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What each read of the rows was given as the failed parts."""
    given: list[object] = []

    def stored_rows(*_: object, failed: object = None) -> StoredRows:
        given.append(failed)
        return ROWS

    monkeypatch.setattr(block_decisions, "stored_rows", stored_rows)
    return given


def shown(*snapshots: QuorumSnapshot, path: str | None = "/t") -> tuple[StoredRows, Probe]:
    probe, origin = Probe(snapshots), Origin("a", 0, "", sole=True)
    rows_that_stay: Any = block_decisions.rows_that_stay
    asked: Asked = rows_that_stay.retry_with(wait=wait_none(), stop=stop_after_attempt(2))
    table = replace(FULL, zookeeper_path=path)
    return asked(cast(Any, None), cast(QuorumProbe, probe), table, origin, BLOCK.intent), probe


def test_rows_of_failed_parts_are_asked_for_by_name(failed: list[object]) -> None:
    rows, _ = shown(CALM, CALM)
    assert rows is ROWS
    assert failed == [("all_1_1_0",)]


@pytest.mark.parametrize("after", [WAITS, FAILED])
def test_rows_are_read_again_when_a_part_waits_for_its_quorum_or_failed_meanwhile(
    failed: list[object], after: QuorumSnapshot
) -> None:
    _, probe = shown(CALM, after, FAILED, FAILED)
    assert len(failed) == 2
    assert not probe.left


def test_nothing_is_reported_while_a_part_still_waits(failed: list[object]) -> None:
    with pytest.raises(Retryable, match="blockhouse quorum inspect"):
        shown(WAITS, WAITS, WAITS, WAITS)
    assert len(failed) == 2


def test_a_table_that_is_not_replicated_has_no_quorum(failed: list[object]) -> None:
    rows, _ = shown(path=None)
    assert rows is ROWS
    assert failed == [None]
