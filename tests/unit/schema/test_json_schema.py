"""The schema printed for producers of JSON describes what the aggregator takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from blockhouse.schema.json_schema import render_json
from blockhouse_aggregator.wire.json_lines import JsonDecoder
from tests.format_messages import encode, history

EXAMPLES: list[tuple[str, dict[str, Any], Any]] = [
    ("UInt8", {"type": "integer", "minimum": 0, "maximum": 255}, 255),
    ("Bool", {"type": "boolean"}, True),
    ("Enum8('a' = 1, 'b' = 2)", {"enum": ["a", "b"]}, "b"),
    ("Date", {"type": "string", "format": "date"}, "2024-01-01"),
    ("UUID", {"type": "string", "format": "uuid"}, "00112233-4455-6677-8899-aabbccddeeff"),
    ("IPv4", {"type": "string", "format": "ipv4"}, "127.0.0.1"),
    ("FixedString(4)", {"type": "string", "maxLength": 4}, "ab"),
    ("Nullable(String)", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
    ("Array(LowCardinality(String))", {"type": "array", "items": {"type": "string"}}, ["a"]),
    ("Map(String, String)", {"type": "object", "additionalProperties": {"type": "string"}}, {"a": "b"}),
]


@pytest.mark.parametrize(("type_", "schema", "value"), EXAMPLES, ids=[example[0] for example in EXAMPLES])
def test_a_column_is_described_as_it_is_sent(type_: str, schema: dict[str, Any], value: Any) -> None:
    table = history({"x": type_})
    printed = json.loads(render_json(table, table.revisions[0]))
    assert printed["properties"]["x"] == {"description": type_} | schema
    assert printed["additionalProperties"] is False
    assert JsonDecoder(table, table.revisions[0]).decode([encode("json", table, [{"x": value}])]).bad == ()
    unknown = JsonDecoder(table, table.revisions[0]).decode([encode("json", table, [{"y": 1}])]).bad
    assert [bad.reason for bad in unknown] == ["UnknownColumn"]


def test_only_what_a_producer_can_send_is_in_it() -> None:
    table = history({"x": "UInt8", "m": "UInt8 MATERIALIZED x + 1", "_kafka_offset": "UInt64"})
    assert list(json.loads(render_json(table, table.revisions[0]))["properties"]) == ["x"]
