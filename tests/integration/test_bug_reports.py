"""What others met who load Kafka into ClickHouse, as inputs of our own: the stream and its neighbours flow on.

The header of a client that lets names be any bytes is sent by the recorded case's own program where it is at hand
(`BUG_REPORTS=folder`, by default beside the checkout).
"""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from e2e.stack import Stack
from tests.integration.runtime_pipeline import NEIGHBOUR, Loading, healed, loading, neighbour_flows
from tests.integration.test_runtime_messages import dead_letters
from tests.integration.test_runtime_poison import reasons, send_compressed

pytestmark = pytest.mark.integration

CASES = Path(os.environ.get("BUG_REPORTS", str(Path(__file__).parents[3] / "shared/cases/bug-reports")))
STREAM = ("a", 0)


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    folder = tmp_path_factory.mktemp("reports")
    with loading(running_stack, folder, "reports", aggregators=1, clusters=1) as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        yield found


def recorded(case: str, module: str) -> Any:
    """A recorded case's program."""
    file = CASES / case / f"{module}.py"
    if not file.exists():
        pytest.skip("the recorded cases are not at hand")
    spec = importlib.util.spec_from_file_location(module, file)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def json_headers(table: str) -> dict[str, str]:
    return {"table": table, "format": "json"}


def test_a_header_name_of_another_client_is_one_dead_letter(pipeline: Loading) -> None:
    client = recorded("01-header-name-not-utf8", "ctypes_send")
    feed, topic = pipeline.feed, pipeline.pipeline.spec.topic
    table = feed.table("hdr", "id UInt64, text String")
    feed.send(table, 3)
    pipeline.settle(table)
    headers = [(name.encode(), text.encode()) for name, text in json_headers(table).items()]
    bootstrap = pipeline.stack.kafka["a"].bootstrap
    poison = b'{"id": 10, "text": "poison"}'
    assert client.send(bootstrap, topic, poison, [*headers, (b"x-caf\xe9", b"1")], partition=STREAM[1]) == (0, 0)
    neighbour_flows(pipeline, table)
    feed.send(table, 5)
    pipeline.settle(table)
    assert b"BadHeaders" in reasons(pipeline).values()


def test_a_bad_value_that_compresses_well_is_one_dead_letter(pipeline: Loading) -> None:
    feed = pipeline.feed
    table = feed.table("dlq", "id UInt64, text String")
    feed.send(table, 1)
    pipeline.settle(table)
    value = json.dumps({"id": -1, "text": "abcdefgh" * 400_000}).encode()
    (offset,) = send_compressed(pipeline, [value], json_headers(table))
    neighbour_flows(pipeline, table)
    feed.send(table, 3)
    pipeline.settle(table)
    letter = dead_letters(pipeline, STREAM[0])[f"{pipeline.stream(*STREAM)}/{offset}"]
    assert (letter["blockhouse.reason"], letter["value"]) == (b"OutOfRange", value)


def test_a_limit_of_the_source_that_was_raised_later_stops_no_stream(pipeline: Loading) -> None:
    """The topic of the dead letters exists, with the limit the source had."""
    feed = pipeline.feed
    table = feed.table("raised", "id UInt64, text String")
    first = feed.raw(b'{"id": -1}', json_headers(table), to=STREAM)
    stream = pipeline.stream(*STREAM)
    pipeline.wait("the first letter, and so the topic", lambda: f"{stream}/{first}" in reasons(pipeline))
    pipeline.set_topic_config(pipeline.pipeline.spec.topic, {"max.message.bytes": str(8 << 20)})
    value = json.dumps({"id": -1, "text": Random(7).randbytes(2 << 20).hex()}).encode()
    (offset,) = send_compressed(pipeline, [value], json_headers(table))
    neighbour_flows(pipeline, table)
    feed.send(table, 3)
    pipeline.settle(table)
    letter = dead_letters(pipeline, STREAM[0])[f"{stream}/{offset}"]
    assert letter["blockhouse.omitted"] == f"value {len(value)}".encode()


def test_headers_that_fill_a_message_stop_no_stream(pipeline: Loading) -> None:
    """A letter repeats them, and has more of its own."""
    feed = pipeline.feed
    table = feed.table("headed", "id UInt64, text String")
    noise = Random(11)
    headers = json_headers(table) | {f"x{n}": noise.randbytes(12_000).hex() for n in range(40)}
    offset = feed.raw(b'{"id": -1}', headers, to=STREAM)
    neighbour_flows(pipeline, table)
    feed.send(table, 3)
    pipeline.settle(table)
    assert reasons(pipeline)[f"{pipeline.stream(*STREAM)}/{offset}"] == b"OutOfRange"


def hazard(pipeline: Loading, table: str, reason: str) -> bool:
    (aggregator,) = pipeline.aggregators
    return aggregator.metric("blockhouse_table_hazard", table=table, reason=reason) == 1


def test_a_view_that_is_created_later_is_a_hazard_as_one_that_was_there(pipeline: Loading) -> None:
    feed, server = pipeline.feed, pipeline.stack.clickhouse[1, 1]
    table = feed.table("looped")
    feed.send(table, 3)
    pipeline.settle(table)
    assert not hazard(pipeline, table, "MaterializedViews")
    server.execute("CREATE MATERIALIZED VIEW looped_mv ENGINE = MergeTree ORDER BY id AS SELECT id FROM looped")
    pipeline.wait("the hazard", lambda: hazard(pipeline, table, "MaterializedViews"))
    server.execute("DROP TABLE looped_mv")
    pipeline.wait("its end", lambda: not hazard(pipeline, table, "MaterializedViews"))


@pytest.mark.parametrize("family", ["Summing", "Replacing"])
def test_a_table_that_merges_rows_is_loaded_and_a_hazard(pipeline: Loading, family: str) -> None:
    feed = pipeline.feed
    table = feed.table(f"merging_{family.lower()}", family=family)
    feed.send(table, 3, to=[NEIGHBOUR])
    pipeline.wait("its hazard", lambda: hazard(pipeline, table, "MergingEngine"))
    pipeline.wait("everything read", pipeline.pipeline.quiet)


def test_a_tombstone_is_a_dead_letter_and_an_empty_value_is_nothing(pipeline: Loading) -> None:
    feed, stream = pipeline.feed, pipeline.stream(*STREAM)
    table = feed.table("buried")
    formats = [{"table": table, "format": form, "schema": "1"} for form in ("rows", "json", "nucolumnar")]
    tombstones = [feed.raw(None, headers, to=STREAM) for headers in formats]
    empty = [feed.raw(b"", headers, to=STREAM) for headers in formats]
    feed.send(table, 3)
    pipeline.settle(table)
    found = reasons(pipeline)
    assert [found.get(f"{stream}/{offset}") for offset in tombstones] == [b"NullValue"] * 3
    assert not [offset for offset in empty if f"{stream}/{offset}" in found]


def test_values_of_other_serializers_are_dead_letters_of_their_own(pipeline: Loading) -> None:
    """Confluent's frame, a length first, text where bytes are meant: never a wrong row."""
    feed, stream = pipeline.feed, pipeline.stream(*STREAM)
    table = feed.table("framed")
    value, headers = feed.encode(table, [{"id": 7, "text": "framed"}])
    bodies = [b"\0\0\0\0\x01\0" + value, b"\0\0\0\0\x01\x02\0" + value, bytes([len(value)]) + value]
    bodies += [gzip.compress(value), base64.b64encode(value), b'{"id": 7, "text": "framed"}']
    offsets = [feed.raw(body, headers, to=STREAM) for body in bodies]
    feed.send(table, 3)
    pipeline.settle(table)
    assert [offset for offset in offsets if f"{stream}/{offset}" not in reasons(pipeline)] == []


def test_a_block_of_many_partitions_is_stored_once(pipeline: Loading) -> None:
    feed = pipeline.feed
    table = feed.table("days", "id UInt64, day Date", partition_by="day")
    value, headers = feed.encode(table, [{"id": number, "day": 19_000 + number} for number in range(60)])
    feed.raw(value, headers, to=STREAM, rows=60)
    neighbour = feed.table("days_beside")
    neighbour_flows(pipeline, neighbour)
    pipeline.settle(table, neighbour)
