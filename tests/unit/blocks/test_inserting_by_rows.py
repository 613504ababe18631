"""An inherited block whose rows are asked first: what the task does when they answer in part, or not at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.pipeline import MAX_ROWS, Quorum
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks import asking, inserting
from blockhouse_aggregator.blocks.build import BlockBuilder
from blockhouse_aggregator.clickhouse import lost_parts
from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from blockhouse_aggregator.clickhouse.lost_parts import ANY_TABLE
from blockhouse_aggregator.clickhouse.presence import StoredRows
from blockhouse_aggregator.gate.messages import BlockKey, Go, Grant, Ready, Result
from tests.format_messages import encode, history

STREAM = StreamId("a", "events-01", 0)
NOW = 1_700_000_000
ALL, SOME, NONE = {7: (0,), 8: (0,)}, {7: (0,)}, {}


class Server:
    """A replica that answers with `stored`, or lacks a part."""

    def __init__(
        self, stored: dict[int, tuple[int, ...]] | None, lost: dict[str, int], *, deleted_while_read: str = ""
    ) -> None:
        self.stored, self.lost = stored, lost
        self.removed, self._deleted_while_read = "", deleted_while_read
        self.sent: list[Any] = []
        self.failed: tuple[str, ...] = ()

    def insert_native(self, request: Any) -> Any:
        request.before()
        self.sent.append(request)
        return SimpleNamespace(deduplicated=True)

    def features(self) -> Any:
        return SimpleNamespace(deduplication_token=False)

    def close(self) -> None: ...

    def rows(self, *_: Any, failed: tuple[str, ...], **__: Any) -> StoredRows:
        self.failed, self.removed = failed, self._deleted_while_read
        if self.stored is None:
            raise ServerFault("it lacks a part", fault=Fault.REPLICA, after=0.5, code=289)
        return StoredRows({offset: len(rows) for offset, rows in self.stored.items()}, self.stored)


def decided(monkeypatch: pytest.MonkeyPatch, server: Server, *, quorum: int = 2, **grant: Any) -> Result:
    """What becomes of the block [7, 8] of two messages with a row each."""
    monkeypatch.setattr(inserting, "Replica", lambda _: server)
    monkeypatch.setattr(
        inserting, "time", SimpleNamespace(time=lambda: NOW, monotonic=lambda: NOW, sleep=lambda _: None)
    )
    monkeypatch.setattr(inserting, "describe", lambda *_: SimpleNamespace(full_name="default.t"))
    monkeypatch.setattr(asking, "stored_rows", server.rows)
    monkeypatch.setattr(lost_parts, "lost_parts", lambda replica: replica.lost)
    monkeypatch.setattr(asking, "why_not_to_insert_again", lambda replica, table, since_ms: replica.removed)
    results: list[Result] = []

    def report(answer: Result | Ready) -> None:
        if isinstance(answer, Ready):
            inserter.go(Go(block=answer.block))
        else:
            results.append(answer)

    inserter = inserting.Inserter(STREAM, ClickHouse(host="127.0.0.1"), Quorum(replicas=quorum), report)
    table = history({"n": "UInt32"})
    builder = BlockBuilder(table, table.revisions[0], STREAM)
    for offset in (7, 8):
        builder.append(offset, encode("rows", table, [{"n": 1}]), NOW * 1000)
    block = builder.seal(MAX_ROWS).block
    assert block is not None
    inserter.buffer(block, builder)
    key = BlockKey(table=block.table, begin=7, end=8)
    inserter.grant(Grant(block=key, token="t", deadline_ms=(NOW + 60) * 1000, ask_provenance=True, **grant))
    inserter.close()
    (result,) = results
    return result


def test_what_the_window_would_recognise_is_sent_as_such_when_no_row_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(NONE, {})
    assert decided(monkeypatch, server, exact=True).presence == "absent"
    assert [request.exact for request in server.sent] == [True]


def test_a_replica_that_lacks_a_part_hands_the_block_to_its_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However certain the window is: it may have been emptied since, and another replica knows the rows."""
    server = Server(None, {"default.other": 3})
    result = decided(monkeypatch, server, exact=True)
    assert (result.outcome, result.reason) == ("retryable", Fault.REPLICA)
    assert server.sent == []


@pytest.mark.parametrize(
    ("lost", "quorum"), [({"default.t": 1}, 2), ({ANY_TABLE: 1}, 2), ({}, 1)], ids=["of-it", "of-any", "no-quorum"]
)
def test_where_no_replica_can_answer_the_window_decides_while_it_is_certain(
    monkeypatch: pytest.MonkeyPatch, lost: dict[str, int], quorum: int
) -> None:
    server = Server(None, lost)
    assert decided(monkeypatch, server, quorum=quorum, exact=True).outcome == "stored"
    assert [request.exact for request in server.sent] == [True]
    assert decided(monkeypatch, Server(None, lost), quorum=quorum).outcome == "retryable"


def test_rows_that_may_have_been_removed_since_are_never_inserted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked after the rows were read: what is deleted in between looks as if it had never been stored."""
    for stored in (NONE, SOME):
        server = Server(stored, {}, deleted_while_read="rows were deleted")
        result = decided(monkeypatch, server, since_ms=NOW)
        assert (result.outcome, result.reason) == ("permanent", "ProvenanceAmbiguous")
        assert "rows were deleted" in result.message
        assert server.sent == []
    everything = Server(ALL, {}, deleted_while_read="rows were deleted")
    assert decided(monkeypatch, everything, since_ms=NOW).presence == "complete"
    repaired = Server(NONE, {}, deleted_while_read="rows were deleted")
    assert decided(monkeypatch, repaired).presence == "absent", "a person has decided"


def test_the_parts_that_failed_are_named_where_rows_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(ALL, {})
    decided(monkeypatch, server, failed_parts=("all_7_7_0",))
    assert server.failed == ("all_7_7_0",)
