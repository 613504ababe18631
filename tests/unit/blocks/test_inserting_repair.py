"""The insert of a repair: provenance is asked right before, exactly the missing rows are sent, the server's memory is
switched off, and nothing is sent twice on a guess."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.pipeline import MAX_ROWS, Quorum
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks import asking, inserting
from blockhouse_aggregator.blocks.build import BlockBuilder
from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from blockhouse_aggregator.clickhouse.presence import StoredRows
from blockhouse_aggregator.gate.messages import BlockKey, Go, Grant, Ready, Result
from tests.format_messages import encode, history

STREAM = StreamId("a", "events-01", 0)
NOW = 1_700_000_000


class Server:
    """Holds rows by offset; the first insert fails when it is `flaky`, with a fate that no one knows."""

    def __init__(self, stored: dict[int, tuple[int, ...]], *, flaky: bool = False) -> None:
        self.stored, self.flaky = stored, flaky
        self.sent: list[Any] = []

    def insert_native(self, request: Any) -> Any:
        request.before()
        self.sent.append(request)
        if self.flaky:
            raise ServerFault("the connection was lost", fault=Fault.RESEND, after=0.0)
        return SimpleNamespace(deduplicated=False)

    def close(self) -> None: ...


def repaired(monkeypatch: pytest.MonkeyPatch, server: Server) -> list[Result]:
    """What becomes of the block [7, 9] of three messages with two rows each."""
    clock = SimpleNamespace(time=lambda: NOW, monotonic=lambda: NOW, sleep=lambda _: None)
    monkeypatch.setattr(inserting, "Replica", lambda _: server)
    monkeypatch.setattr(inserting, "time", clock)
    monkeypatch.setattr(inserting, "describe", lambda *_: SimpleNamespace())
    counts = StoredRows({o: len(r) for o, r in server.stored.items()}, server.stored)
    monkeypatch.setattr(asking, "stored_rows_of_any_revision", lambda *_, **__: counts)
    results: list[Result] = []

    def report(answer: Result | Ready) -> None:
        if isinstance(answer, Ready):
            inserter.go(Go(block=answer.block))
        else:
            results.append(answer)

    inserter = inserting.Inserter(STREAM, ClickHouse(host="127.0.0.1"), Quorum(), report)
    table = history({"n": "UInt32"})
    builder = BlockBuilder(table, table.revisions[0], STREAM)
    for offset in (7, 8, 9):
        builder.append(offset, encode("rows", table, [{"n": 1}, {"n": 2}]), NOW * 1000)
    block = builder.seal(MAX_ROWS).block
    assert block is not None
    inserter.buffer(block, builder)
    key = BlockKey(table=block.table, begin=7, end=9)
    inserter.grant(Grant(block=key, token="t", deadline_ms=(NOW + 60) * 1000, ask_provenance=True, repair=True))
    inserter.close()
    return results


def test_exactly_the_missing_rows_are_sent_and_nothing_deduplicates_them(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({7: (0, 1), 8: (1,)})
    (result,) = repaired(monkeypatch, server)
    assert (result.outcome, result.presence) == ("stored", "partial")
    assert [(request.rows, request.deduplicate) for request in server.sent] == [(3, False)]


def test_what_was_stored_since_it_was_found_missing_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({7: (0, 1), 8: (0, 1), 9: (0, 1)})
    (result,) = repaired(monkeypatch, server)
    assert (result.outcome, result.presence) == ("stored", "complete")
    assert server.sent == []


def test_after_an_insert_of_unknown_fate_it_is_decided_again_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may still store the first one, and would not recognise the second."""
    server = Server({}, flaky=True)
    (result,) = repaired(monkeypatch, server)
    assert result.outcome == "retryable"
    assert len(server.sent) == 1
