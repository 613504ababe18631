"""A try after one of unknown fate is bound to what the first was sent with: its token, or its content without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.pipeline import MAX_ROWS, Quorum
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks import inserting
from blockhouse_aggregator.blocks.build import BlockBuilder
from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from blockhouse_aggregator.gate.messages import BlockKey, Grant, Result
from blockhouse_aggregator.wire.formats import Format
from tests.format_messages import encode, history

STREAM = StreamId("a", "events-01", 0)
NOW = 1_700_000_000


@pytest.mark.parametrize(
    ("tokens", "bound"),
    [
        ((True, True), [(False, False), (False, True)]),
        ((False, False), [(False, False), (True, False)]),
        ((False, True), [(False, False), (True, False)]),  # the server was replaced: the client refuses what is exact
        ((True, False), [(False, False), (False, True)]),
    ],
)
def test_a_second_try_is_recognised_by_what_the_first_was_sent_with(
    monkeypatch: pytest.MonkeyPatch, tokens: tuple[bool, bool], bound: list[tuple[bool, bool]]
) -> None:
    sent: list[Any] = []
    servers = iter(tokens)

    def insert_native(request: Any) -> Any:
        sent.append(request)
        if len(sent) == 1:
            raise ServerFault("the connection was lost", fault=Fault.RESEND, after=0.0)
        return SimpleNamespace(deduplicated=True)

    def features() -> Any:
        return SimpleNamespace(deduplication_token=next(servers))

    replica = SimpleNamespace(insert_native=insert_native, features=features, close=lambda: None)
    clock = SimpleNamespace(time=lambda: NOW, monotonic=lambda: NOW, sleep=lambda _: None)
    monkeypatch.setattr(inserting, "Replica", lambda _: replica)
    monkeypatch.setattr(inserting, "time", clock)
    results: list[Result] = []
    inserter = inserting.Inserter(STREAM, ClickHouse(host="127.0.0.1"), Quorum(), results.append)
    block = sealed()
    inserter.buffer(block)
    key = BlockKey(table=block.table, begin=block.begin, end=block.end)
    inserter.grant(Grant(block=key, token="t", deadline_ms=(NOW + 60) * 1000))
    inserter.close()

    assert [result.outcome for result in results] == ["stored"]
    assert [(request.exact, request.by_token) for request in sent] == bound


def sealed() -> Any:
    table = history({"n": "UInt32"})
    builder = BlockBuilder(table, table.revisions[0], STREAM)
    builder.append(7, encode("rows", table, [{"n": 1}]), NOW * 1000, Format.ROWS)
    builder.decode()
    block = builder.seal(MAX_ROWS).block
    assert block is not None
    return block
