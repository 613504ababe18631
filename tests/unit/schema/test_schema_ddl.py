"""What a declared CREATE TABLE is read as, and what is refused with which words."""

from __future__ import annotations

import pytest

from blockhouse.errors import Permanent
from blockhouse.schema.ddl import normalised, read_declaration
from blockhouse.schema.model import PROVENANCE_COLUMNS, DefaultKind

ENGINE = "ENGINE = MergeTree ORDER BY id"


def test_columns_keep_their_types_defaults_codecs_and_order() -> None:
    declared = read_declaration(
        "db.t",
        "CREATE TABLE db.t (id UInt64 CODEC(Delta, LZ4), day Date, at DateTime('UTC') DEFAULT '2020-01-01 00:00:00',"
        f" up String MATERIALIZED upper(toString(id)), also String ALIAS up, gone String EPHEMERAL) {ENGINE}",
    )
    found = [(c.column.name, c.column.type, c.column.default_kind) for c in declared.columns]
    assert found[:6] == [
        ("id", "UInt64", DefaultKind.NONE),
        ("day", "Date", DefaultKind.NONE),
        ("at", "DateTime('UTC')", DefaultKind.DEFAULT),
        ("up", "String", DefaultKind.MATERIALIZED),
        ("also", "String", DefaultKind.ALIAS),
        ("gone", "String", DefaultKind.EPHEMERAL),
    ]
    assert declared.columns[0].sql == "id UInt64 CODEC(Delta, LZ4)"
    assert declared.columns[2].column.default_expression == "'2020-01-01 00:00:00'"


def test_what_goes_to_the_server_is_word_for_word_what_was_written() -> None:
    """The grammar would write rand() as randCanonical(), which is another function."""
    column = "`we ird` Array(DateTime('UTC')) DEFAULT [now(),  rand()] CODEC(LZ4) COMMENT 'a, (b DEFAULT'"
    key = "ORDER BY (id,  rand())"
    declared = read_declaration(
        "db.t",
        f"CREATE TABLE t (id UInt64, {column}, INDEX i id TYPE minmax GRANULARITY 4,)\n"
        f"ENGINE = MergeTree PARTITION BY toYYYYMM( at ) {key} TTL at + INTERVAL 1 MONTH SETTINGS a = 5;",
    )
    assert declared.columns[1].sql == column
    assert declared.columns[1].column.name == "we ird"
    assert declared.columns[1].column.type == "Array(DateTime('UTC'))"
    assert declared.columns[1].column.default_expression == "[now(),  rand()]"
    assert declared.others == ("INDEX i id TYPE minmax GRANULARITY 4",)
    assert declared.clauses == ("PARTITION BY toYYYYMM( at )", key, "TTL at + INTERVAL 1 MONTH")
    assert declared.settings == (("a", "5"),)


def test_provenance_columns_are_added_once() -> None:
    declared = read_declaration("db.t", f"CREATE TABLE t (_kafka_cluster String, id UInt64) {ENGINE}")
    names = [c.column.name for c in declared.columns]
    assert names == ["_kafka_cluster", "id", *PROVENANCE_COLUMNS[1:]]


def test_nested_is_declared_as_the_columns_the_server_lists() -> None:
    declared = read_declaration("db.t", f"CREATE TABLE t (id UInt64, n Nested(day Date, tags Array(String))) {ENGINE}")
    assert [(c.column.name, c.column.type) for c in declared.columns[1:3]] == [
        ("n.day", "Array(Date)"),
        ("n.tags", "Array(Array(String))"),
    ]


@pytest.mark.parametrize(
    ("engine", "family", "arguments"),
    [
        ("MergeTree", "MergeTree", ()),
        ("MergeTree()", "MergeTree", ()),
        ("ReplacingMergeTree(version)", "ReplacingMergeTree", ("version",)),
        ("ReplicatedMergeTree('/path/{shard}', '{replica}')", "MergeTree", ()),
        ("ReplicatedCollapsingMergeTree('/path/{shard}', '{replica}', sign)", "CollapsingMergeTree", ("sign",)),
    ],
)
def test_the_engine_is_a_family_whose_path_is_ours_to_give(engine: str, family: str, arguments: tuple[str]) -> None:
    declared = read_declaration("db.t", f"CREATE TABLE t (id UInt64) ENGINE = {engine} ORDER BY id")
    assert (declared.engine, declared.engine_arguments) == (family, arguments)


@pytest.mark.parametrize(
    ("sql", "reason", "message"),
    [
        ("CREAT TABLE t (id UInt64)", "SyntaxError", "cannot be read"),
        ("", "SyntaxError", "must be one CREATE TABLE statement"),
        ("ALTER TABLE t ADD COLUMN x UInt8", "SyntaxError", "must be one CREATE TABLE statement"),
        (f"CREATE TABLE t (id UInt64) {ENGINE}; DROP TABLE t", "SyntaxError", "must be one CREATE TABLE statement"),
        ("CREATE TABLE t AS SELECT 1", "SyntaxError", "must list the columns"),
        (f"CREATE TABLE other (id UInt64) {ENGINE}", "SyntaxError", "creates other"),
        (f"CREATE TABLE t (id UInt64, id String) {ENGINE}", "SyntaxError", "declares id twice"),
        (f"CREATE TABLE t (id DEFAULT 5) {ENGINE}", "SyntaxError", "column id has no type"),
        ("CREATE TABLE t (id UInt64)", "UnsupportedEngine", "names no ENGINE"),
        ("CREATE TABLE t (id UInt64) ENGINE = Kafka('a')", "UnsupportedEngine", "engine Kafka"),
        (f"CREATE TABLE t (id AggregateFunction(sum, UInt8)) {ENGINE}", "UnsupportedType", "column id"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_table_and_the_cause(sql: str, reason: str, message: str) -> None:
    with pytest.raises(Permanent) as refused:
        read_declaration("db.t", sql)
    assert refused.value.reason == reason
    assert "table db.t" in str(refused.value)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("one", "other"), [("(a)", "a"), ("tuple()", ""), ("(a,b)", "( a, b )"), ("toYYYYMM(at)", "(toYYYYMM(at))")]
)
def test_spellings_of_one_expression_are_normalised_alike(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)
