"""Messages of all formats through a whole aggregator: stored exactly once, with the server's own defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.stack import Stack
from tests.format_messages import json_message, nucolumnar_message
from tests.integration.runtime_pipeline import Loading, loading

pytestmark = pytest.mark.integration

STREAM = ("a", 0)


@pytest.fixture(scope="module")
def pipeline(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(running_stack, tmp_path_factory.mktemp("formats"), "formats", aggregators=1) as found:
        yield found


def test_formats_mix_in_one_stream_and_missing_columns_are_filled_in(pipeline: Loading) -> None:
    feed = pipeline.feed
    table = feed.table("mixed", "id UInt64, text String, size UInt32 DEFAULT length(text), at DateTime DEFAULT now()")

    def kinds(number: int, text: bytes) -> dict[str, Any]:
        return {"text": {"string_value": text}, "id": {"ulong_value": number}}

    # given messages of three formats between each other, bad ones among them
    for number in range(0, 60, 6):
        value, headers = feed.encode(table, [{"id": number, "text": "r"}, {"id": number + 1, "text": "rows"}])
        feed.raw(value, headers, to=STREAM, rows=2)
        rows = [{"id": number + 2, "text": "json!"}, {"id": number + 3, "text": "j", "size": 77, "at": 86400}]
        feed.raw(json_message(rows), {"table": table, "format": "json"}, to=STREAM, rows=2)
        feed.raw(b'{"id": -1}', {"table": table, "format": "json"}, to=STREAM)
        message = nucolumnar_message([kinds(number + 4, b"nu"), kinds(number + 5, b"")])
        feed.raw(message, {"table": table, "format": "nucolumnar"}, to=STREAM, rows=2)
        feed.raw(message[:-1], {"table": table, "format": "nucolumnar"}, to=STREAM)
    # then every good row is there exactly once, on every replica
    pipeline.settle(table)
    for server in pipeline.stack.clickhouse.values():
        stored = server.execute(f"SELECT id, text, size, toUInt32(at) FROM {table} ORDER BY id")
        assert [row[0] for row in stored] == list(range(60))
        # with what the server would have filled in, and the time of the message for the time
        assert {(text, size) for _, text, size, _ in stored} == {
            ("r", 1),
            ("rows", 4),
            ("json!", 5),
            ("j", 77),
            ("nu", 2),
            ("", 0),
        }
        assert {at for _, text, _, at in stored if text == "j"} == {86400}
        assert min(at for _, text, _, at in stored if text != "j") > 1_700_000_000
    # and the bad ones are dead
    (aggregator,) = pipeline.aggregators
    assert aggregator.metric("blockhouse_dead_letters_total", stream=pipeline.stream(*STREAM)) == 20
