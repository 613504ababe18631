"""A read that asks for the part that had the last quorum: which replica answers where all have lost a part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from blockhouse_aggregator.clickhouse import lost_parts, provenance
from blockhouse_aggregator.clickhouse.errors import NOT_IN_QUORUM, Fault, ServerFault
from blockhouse_aggregator.clickhouse.presence import Origin
from blockhouse_aggregator.clickhouse.provenance import stored_rows
from tests.unit.clickhouse.test_merging_engines import TABLE

PLAIN = replace(TABLE, engine="ReplicatedMergeTree")


class Lacking:
    """A replica that has read the whole log and refuses a read of everything that had its quorum, with `code`."""

    name = "r1"

    def __init__(self, code: int) -> None:
        self._code = code

    def query(self, _sql: str, _values: Any = None, *, settings: Any = None) -> list[tuple[Any, ...]]:
        if settings:
            raise ServerFault("it lacks the last part", fault=Fault.REPLICA, code=self._code)
        return [(4, 1, 0, (0,))]


@pytest.fixture(autouse=True)
def _caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "caught_up", lambda *_: True)


@pytest.mark.parametrize("lost", [{"default.sums": 1}, {lost_parts.ANY_TABLE: 1}], ids=["of-it", "of-any"])
def test_it_answers_where_every_replica_has_lost_a_part(monkeypatch: pytest.MonkeyPatch, lost: dict[str, int]) -> None:
    """Else no replica would answer until the table gets another part, which may be never."""
    monkeypatch.setattr(lost_parts, "lost_parts", lambda _: lost)
    replica: Any = Lacking(NOT_IN_QUORUM)
    assert stored_rows(replica, PLAIN, Origin("a", 0), 4, 7).counts == {4: 1}


@pytest.mark.parametrize(("lost", "code"), [({}, NOT_IN_QUORUM), ({"default.sums": 1}, 242)], ids=["none", "read-only"])
def test_it_does_not_where_a_peer_may_have_the_part(
    monkeypatch: pytest.MonkeyPatch, lost: dict[str, int], code: int
) -> None:
    monkeypatch.setattr(lost_parts, "lost_parts", lambda _: lost)
    replica: Any = Lacking(code)
    with pytest.raises(ServerFault):
        stored_rows(replica, PLAIN, Origin("a", 0), 4, 7)
