"""`blockhouse audit --values` on real servers: what was stored by the aggregator's own blocks, and what was changed."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit import AuditImpossible, run
from blockhouse_aggregator.audit.values import TableValues, ValuesSpec
from blockhouse_aggregator.audit.values.judging import read_chosen
from blockhouse_aggregator.audit.values.reading import reader
from blockhouse_aggregator.audit.values.rows import ReplicaValues, portions
from blockhouse_aggregator.blocks.build import BlockBuilder
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.model import InsertRequest
from blockhouse_aggregator.clickhouse.tables import describe
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.wire.formats import Format
from e2e.stack.process import wait_until
from e2e.stack.tables import PROVENANCE
from tests.format_messages import FORMATS, encode
from tests.integration.test_clickhouse_types import EXPRESSIONS, TIME_MS, Sent, Server, numbered, server
from tests.integration.test_produce_audit import Pipeline, pipeline
from tests.type_cases import CASES
from tests.type_values import ABSENT, SKIP, Case

pytestmark = [pytest.mark.integration, pytest.mark.clickhouse]
__all__ = ["pipeline", "server"]
STREAM = StreamId("a", "t", 0)


def judged(server: Server, table: TableHistory, messages: Sent) -> TableValues:
    """The values of these messages, whose offsets are their places, against what the server has."""
    config = ClickHouse(host=server.server.host, port=server.server.port)
    with closing(ReplicaValues(config)) as values:
        values.prepare([table.name], {table.name: table})
        for form in FORMATS:
            own = reader(Format(form), table, table.revisions[0])
            read = [
                (offset, TIME_MS, own.rows(encode(form, table, [row])))
                for offset, (of, row) in enumerate(messages)
                if of == form
            ]
            for portion in portions(STREAM, table.name, read):
                values.judge(portion, own)
        return values.result(table.name)


def store(server: Server, table: TableHistory, messages: Sent) -> None:
    sealed = server.seal(table, messages)
    assert sealed.dead == ()
    assert sealed.block is not None
    server.insert(sealed.block)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.type)
def test_every_kind_of_value_is_right_as_stored_and_wrong_in_the_place_of_another(server: Server, case: Case) -> None:
    if not case.old and server.oldest:
        pytest.skip(f"18.16 has no {case.type}")
    # given every value in every format, and a message of each without the column
    default, shown = case.default or ("", case.zero)
    table = server.create(f"x {case.type} {'DEFAULT ' if default else ''}{default}, n UInt32, {PROVENANCE}")
    values = [(form, v) for form in FORMATS for v in case.good if getattr(v, form) is not SKIP]
    values = [(form, v) for form, v in values if not (default and form == "rows" and v.rows is ABSENT)]
    messages = [numbered(form, n, x=getattr(value, form)) for n, (form, value) in enumerate(values)]
    messages += [numbered(form, len(values) + n) for n, form in enumerate(FORMATS)]
    store(server, table, messages)
    # when the right rows are judged, then nothing is wrong
    found = judged(server, table, messages)
    assert (found.rows, found.values, found.wrong.total()) == (len(messages), 2 * len(messages), 0), found.offenders
    assert not found.columns
    assert not found.rest
    # when each row has the value of the one after it, then every row that differs is wrong
    texts = [*(value.shown for _, value in values), *[shown] * len(FORMATS)]
    others = enumerate([*messages[1:], messages[0]])
    turned = [numbered(form, n, x=row.get("x", ABSENT)) for n, (form, row) in others]
    server.replica.query(f"TRUNCATE TABLE {server.name}")
    store(server, table, turned)
    differing = [one != other for one, other in zip(texts, [*texts[1:], texts[0]], strict=True)]
    assert judged(server, table, messages).wrong == ({"x": sum(differing)} if any(differing) else {})


@pytest.mark.parametrize(("type_", "expression"), EXPRESSIONS, ids=[text for _, text in EXPRESSIONS])
def test_a_default_is_asked_for_again_and_a_materialized_column_too(
    server: Server, type_: str, expression: str
) -> None:
    computed = f"x {type_} DEFAULT {expression}, y {type_} MATERIALIZED {expression}"
    table = server.create(f"n UInt32, a Int16, s String, ts DateTime, tags Array(UInt8), {computed}, {PROVENANCE}")
    rows = [{"a": n * 3, "s": f"Text % {n}", "ts": 1_600_000_000 + n * 5000, "tags": [1, 2]} for n in range(4)]
    messages = [numbered("json", n, **row) for n, row in enumerate(rows)]
    store(server, table, messages)
    found = judged(server, table, messages)
    assert (found.values, found.wrong.total()) == (7 * len(messages), 0), found.offenders
    assert not found.columns

    others = [numbered("json", n, **row) for n, row in enumerate([*rows[1:], rows[0]])]
    server.replica.query(f"TRUNCATE TABLE {server.name}")
    store(server, table, others)
    assert judged(server, table, messages).wrong["a"] == len(messages), "the columns that it is computed from differ"


def test_a_default_of_the_time_is_the_time_of_the_message_and_a_changed_one_is_wrong(server: Server) -> None:
    table = server.create(f"n UInt32, at DateTime DEFAULT now(), day Date DEFAULT toDate(at), {PROVENANCE}")
    messages = [numbered("json", 0), numbered("rows", 1, at=86400), numbered("json", 2, day="2001-02-03")]
    store(server, table, messages)
    assert judged(server, table, messages).wrong == {}

    server.replica.query(f"TRUNCATE TABLE {server.name}")
    store(server, table, [numbered("json", 0, at=1, day=0), messages[1], messages[2]])
    found = judged(server, table, messages)
    assert found.wrong == {"at": 1}, "the day is that of the stored moment"
    assert [(o.offset, o.row, o.column, o.stored) for o in found.offenders] == [(0, 0, "at", "1")]


def test_what_cannot_be_judged_is_named(server: Server) -> None:
    clock = "y DateTime MATERIALIZED toDateTime(toUInt32(n)) + 1, z UInt64 MATERIALIZED length(splitByChar(',', s))"
    table = server.create(f"n UInt32, s String, {clock}, {PROVENANCE.replace(', _kafka_row UInt32', '')}")
    store(server, table, [numbered("json", 0, s="a,b")])
    config = ClickHouse(host=server.server.host, port=server.server.port)
    with closing(ReplicaValues(config)) as values:
        values.prepare([table.name], {table.name: table})
        own = reader(Format.JSON, table, table.revisions[0])
        rows = own.rows(b'{"n": 0, "s": "a,b"}')
        two = own.rows(b'{"n": 1}\n{"n": 2}')
        for portion in portions(STREAM, table.name, [(0, TIME_MS, rows), (1, TIME_MS, two)]):
            values.judge(portion, own)
        found = values.result(table.name)
    assert (found.rows, found.wrong.total()) == (1, 0)
    assert dict(found.rest) == {"rows: the table has no _kafka_row to distinguish them": 2}
    assert found.columns.keys() <= {"z"}, found.columns


def load(pipeline: Pipeline) -> None:
    """Store what the topic holds by blocks of the aggregator's own, on the first replica."""
    sent = read_manifest(pipeline)
    with Replica(pipeline.replicas[0]) as replica:
        found = describe(replica, "default", pipeline.table)
        assert found is not None
        history = TableHistory(id=1, name=found.full_name, revisions=(first_revision(found.columns),))
        revision = history.revisions[0]
        for cluster in pipeline.clusters:
            topic_id = ClusterFacts(cluster).topic_id(pipeline.topic)
            for partition in range(2):
                stream = StreamId(cluster.name, pipeline.topic, partition)
                builder = BlockBuilder(history, revision, stream, topic_id=topic_id)
                sent = [
                    m for m in read_manifest(pipeline) if (m["cluster"], m["partition"]) == (cluster.name, partition)
                ]
                for message in read_chosen(cluster, stream, np.array([m["offset"] for m in sent], np.int64)):
                    offset, value = message.offset(), message.value()
                    assert offset is not None
                    assert isinstance(value, bytes)
                    builder.append(offset, value, message.timestamp()[1], Format.ROWS)
                block = builder.seal(MAX_ROWS).block
                assert block is not None
                replica.insert_native(
                    InsertRequest("default", pipeline.table, block.header, block.body, block.rows, 0, 5.0, None, 10.0)
                )


def read_manifest(pipeline: Pipeline) -> list[dict[str, Any]]:
    return sorted(map(json.loads, pipeline.manifest.read_text().splitlines()), key=lambda m: m["offset"])


@pytest.fixture
def loaded(pipeline: Pipeline) -> Pipeline:
    """A topic of 60 messages of three rows, stored."""
    pipeline.produce("--messages", "60", "--rows-per-message", "3", "--table", f"default.{pipeline.table}")
    load(pipeline)
    return pipeline


def test_a_value_that_was_altered_by_hand_is_found(loaded: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    # given rows that are as they were sent
    assert loaded.audit("--wait", "20", "--values", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["exact"]
    assert report["values"]["messages"] == report["values"]["of"] == 60
    assert [(t["rows"], t["values"]) for t in report["values"]["tables"]] == [(180, 360)] * 2
    # when one value of one row is altered
    sent = read_manifest(loaded)[0]
    place = f"_kafka_cluster = '{sent['cluster']}' AND _kafka_partition = {sent['partition']} AND _kafka_offset = 0"
    update = f"ALTER TABLE {loaded.table} UPDATE text = concat(text, '!') WHERE {place} AND _kafka_row = 1"
    altered = f"SELECT count() FROM {loaded.table} WHERE {place} AND _kafka_row = 1 AND endsWith(text, '!')"
    with Replica(loaded.replicas[0]) as first, Replica(loaded.replicas[1]) as second:
        first.query(update)
        assert wait_until(lambda: first.query(altered) == second.query(altered) == [(1,)], timeout=60)
    # then the counts are exact, and the value is named
    assert loaded.audit("--wait", "0") == 0
    capsys.readouterr()
    assert loaded.audit("--values", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["exact"]
    for table in report["values"]["tables"]:
        assert table["wrong"] == {"text": 1}
        (offender,) = table["offenders"]
        stream = f"{sent['cluster']}/{loaded.topic}/{sent['partition']}"
        assert (offender["stream"], offender["offset"], offender["row"], offender["column"]) == (stream, 0, 1, "text")
    assert loaded.audit("--values") == 1
    assert "VALUES DIFFER" in capsys.readouterr().out


def test_a_sample_judges_about_as_many_messages(loaded: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    assert loaded.audit("--wait", "20", "--values", "--sample", "20", "--json") == 0
    values = json.loads(capsys.readouterr().out)["values"]
    assert 0 < values["messages"] < values["of"] == 60
    assert {t["rows"] for t in values["tables"]} == {3 * values["messages"]}


def test_values_of_which_none_can_be_judged_are_neither_right_nor_wrong(loaded: Pipeline) -> None:
    with pytest.raises(AuditImpossible, match="the schema history does not have"):
        run(replace(loaded.spec, values=ValuesSpec({})))


def test_options_that_mean_nothing_are_refused(loaded: Pipeline) -> None:
    assert loaded.audit("--sample", "5") == 2
    assert loaded.audit("--values", "--continuous") == 2
