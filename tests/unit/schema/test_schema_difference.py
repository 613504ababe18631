"""What is added to a table and what is refused, from declaration and server."""

from __future__ import annotations

import pytest

from blockhouse.schema.ddl import read_declaration
from blockhouse.schema.difference import FoundTable, add_columns_statement, compare, create_statement
from blockhouse.schema.model import DefaultKind, ServerColumn

ENGINE = "ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY (id, at)"
DDL = f"CREATE TABLE db.t (id UInt64, at DateTime('UTC'), n UInt32 DEFAULT 5, low String DEFAULT lower('X')) {ENGINE}"
PROVENANCE = tuple(
    ServerColumn(name=name, type=type_)
    for name, type_ in (
        ("_kafka_cluster", "String"),
        ("_kafka_partition", "UInt32"),
        ("_kafka_offset", "UInt64"),
        ("_kafka_row", "UInt32"),
        ("_kafka_topic", "String"),
    )
)
COLUMNS = (
    ServerColumn(name="id", type="UInt64"),
    ServerColumn(name="at", type="DateTime('UTC')"),
    ServerColumn(name="n", type="UInt32", default_kind=DefaultKind.DEFAULT, default_expression="CAST(5, 'UInt32')"),
    ServerColumn(name="low", type="String", default_kind=DefaultKind.DEFAULT, default_expression="lower('X')"),
    *PROVENANCE,
)


def found(*columns: ServerColumn, engine: str = "ReplicatedMergeTree", partition: str = "toYYYYMM(at)") -> FoundTable:
    return FoundTable(engine, columns, partition, "id, at")


def changed(name: str, **to: object) -> tuple[ServerColumn, ...]:
    return tuple(c.model_copy(update=to) if c.name == name else c for c in COLUMNS)


def test_the_server_spells_constants_with_a_cast_and_still_has_what_was_declared() -> None:
    assert compare(read_declaration("db.t", DDL), found(*COLUMNS)).none


def test_missing_columns_are_added_behind_their_stored_neighbours() -> None:
    declared = read_declaration("db.t", DDL)
    difference = compare(declared, found(*(c for c in COLUMNS if c.name not in ("at", "low", "_kafka_row"))))
    assert difference.refused == ()
    assert add_columns_statement(declared, difference.added) == (
        "ALTER TABLE `db`.`t` ADD COLUMN at DateTime('UTC') AFTER `id`,"
        " ADD COLUMN low String DEFAULT lower('X') AFTER `n`,"
        " ADD COLUMN `_kafka_row` UInt32 AFTER `_kafka_offset`"
    )


def test_a_computed_column_is_nobodys_neighbour() -> None:
    declared = read_declaration(
        "db.t", f"CREATE TABLE t (id UInt64, up String MATERIALIZED upper('x'), at DateTime, b UInt8) {ENGINE}"
    )
    have = [c for c in declared.columns if c.column.name != "at"]
    difference = compare(declared, found(*(c.column for c in have)))
    assert add_columns_statement(declared, difference.added) == (
        "ALTER TABLE `db`.`t` ADD COLUMN at DateTime AFTER `id`"
    )


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (found(*COLUMNS, ServerColumn(name="old", type="UInt8")), "column old is on the server and not in the DDL"),
        (found(*changed("n", type="UInt64")), "column n is UInt64 on the server and UInt32 in the DDL"),
        (found(*changed("n", default_expression="6")), "column n has DEFAULT 6 on the server and 5 in the DDL"),
        (
            found(*changed("low", default_expression="upper('X')")),
            "column low has DEFAULT upper('X') on the server and LOWER('X') in the DDL",
        ),
        (
            found(*changed("id", default_kind=DefaultKind.MATERIALIZED, default_expression="1")),
            "column id is MATERIALIZED on the server and plain in the DDL",
        ),
        (found(*COLUMNS, engine="ReplicatedSummingMergeTree"), "the engine is SummingMergeTree on the server"),
        (found(*COLUMNS, engine="MergeTree"), "the table is not replicated on the server"),
        (found(*COLUMNS, partition="toYYYYMMDD(at)"), "the partition key is toYYYYMMDD(at) on the server"),
    ],
)
def test_everything_but_an_added_column_is_refused_with_the_difference(server: FoundTable, message: str) -> None:
    difference = compare(read_declaration("db.t", DDL), server)
    assert len(difference.refused) == 1
    assert difference.refused[0].lower().startswith(message.lower())
    assert difference.added == ()


def test_create_gives_path_replica_and_windows_unless_the_owner_set_them() -> None:
    declared = read_declaration("db.t", DDL + " SETTINGS replicated_deduplication_window = 7")
    sql = create_statement(
        declared,
        path="/clickhouse/tables/events/01/db.t",
        replica="r1",
        settings=[("replicated_deduplication_window", 1000), ("replicated_deduplication_window_seconds", 86400)],
    )
    assert "ENGINE = ReplicatedMergeTree('/clickhouse/tables/events/01/db.t', 'r1')" in sql
    assert sql.endswith("replicated_deduplication_window = 7, replicated_deduplication_window_seconds = 86400")


def test_the_topic_of_either_type_is_the_same_unless_it_is_declared() -> None:
    declared = read_declaration("db.t", DDL)
    compact = changed("_kafka_topic", type="LowCardinality(String)")
    assert compare(declared, found(*compact)).none
    typed = declared.with_topic_type("LowCardinality(String)")
    assert compare(typed, found(*COLUMNS)).none
    assert "`_kafka_topic` LowCardinality(String)" in create_statement(typed, path="/p", replica="r")
    own = read_declaration("db.t", DDL.replace("(id UInt64,", "(id UInt64, _kafka_topic FixedString(9),"))
    assert own.with_topic_type("LowCardinality(String)") == own
    assert compare(own, found(*COLUMNS)).refused
