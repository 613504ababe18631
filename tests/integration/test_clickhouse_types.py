"""The real server reads every type it has from every format, and its own DEFAULTs for what messages lack."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.errors import Permanent
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import TableHistory
from blockhouse.schema.parse import type_names
from blockhouse.schema.server_types import INSTEAD
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder, EncodedBlock, Sealed
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.expressions import DefaultValues
from blockhouse_aggregator.clickhouse.model import InsertRequest
from blockhouse_aggregator.clickhouse.tables import describe
from blockhouse_aggregator.wire.formats import Format
from e2e.stack import Stack
from e2e.stack.clickhouse import ClickHouseServer
from tests.format_messages import FORMATS, encode
from tests.integration.conftest import Names
from tests.type_cases import CASES
from tests.type_values import ABSENT, SKIP, Case

pytestmark = [pytest.mark.integration, pytest.mark.clickhouse]

TIME_MS = 1_700_000_000_123
Sent = Sequence[tuple[str, Mapping[str, Any]]]


class Server:
    """One replica, and tables of the test on it."""

    def __init__(self, server: ClickHouseServer, stem: str) -> None:
        self.server = server
        self.name = stem
        self._config = ClickHouse(host=server.host, port=server.port)
        self.replica = Replica(self._config)
        self.defaults = DefaultValues(self._config)
        self.oldest = self.replica.features().version < (19, 0, 0)

    def create(self, columns: str) -> TableHistory:
        settings = {"allow_experimental_low_cardinality_type": 1}
        known = {name for (name,) in self.server.execute("SELECT name FROM system.settings")}
        self.replica.query(f"DROP TABLE IF EXISTS {self.name}")
        self.replica.query(
            f"CREATE TABLE {self.name} ({columns}) ENGINE = MergeTree ORDER BY tuple()",
            settings={name: value for name, value in settings.items() if name in known},
        )
        found = describe(self.replica, "default", self.name)
        assert found is not None
        return TableHistory(id=1, name=f"default.{self.name}", revisions=(first_revision(found.columns),))

    def seal(self, table: TableHistory, messages: Sent, *, timestamp_ms: int = TIME_MS) -> Sealed:
        builder = BlockBuilder(table, table.revisions[0], StreamId("a", "t", 0), self.defaults)
        for offset, (form, row) in enumerate(messages):
            builder.append(offset, encode(form, table, [row]), timestamp_ms, Format(form))
        return builder.seal(MAX_ROWS)

    def insert(self, block: EncodedBlock) -> None:
        self.replica.insert_native(
            InsertRequest("default", self.name, block.header, block.body, block.rows, 0, 5.0, None, 10.0)
        )

    def read(self, expression: str) -> list[str]:
        """What the server shows of the expression, row by row, in the order of column `n`."""
        return self.http(f"SELECT {expression} FROM {self.name} ORDER BY n FORMAT TSV").decode().split("\n")[:-1]

    def http(self, sql: str) -> bytes:
        url = f"http://{self.server.host}:{self.server.http_port}/"
        with urllib.request.urlopen(url, data=sql.encode(), timeout=20) as reply:
            return bytes(reply.read())


@pytest.fixture
def server(stack: Stack, names: Names) -> Iterator[Server]:
    found = Server(stack.clickhouse[1, 1], names.table)
    yield found
    found.replica.query(f"DROP TABLE IF EXISTS {found.name}")
    found.replica.close()
    found.defaults.close()


def numbered(form: str, number: int, **values: Any) -> tuple[str, dict[str, Any]]:
    own: Any = {"long_value": number} if form == "nucolumnar" else number
    return form, {"n": own} | {name: value for name, value in values.items() if value is not ABSENT}


def test_what_a_server_lacks_is_known_by_the_names_of_the_types(server: Server) -> None:
    families = {name for (name,) in server.replica.query("SELECT name FROM system.data_type_families")}

    lacking = {name for case in CASES for name in type_names(case.type) - families}

    assert lacking == (INSTEAD.keys() if server.oldest else set())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.type)
def test_the_server_reads_every_format_alike_and_would_write_the_same_bytes(server: Server, case: Case) -> None:
    if not case.old and server.oldest:
        pytest.skip(f"18.16 has no {case.type}")
    # given every value in every format that can express it, and a message of each without the column
    default, shown = case.default or ("", case.zero)
    table = server.create(f"x {case.type} {'DEFAULT ' if default else ''}{default}, n UInt32")
    expressed = [(form, v) for form in FORMATS for v in case.good if getattr(v, form) is not SKIP]
    explicit = [(form, v) for form, v in expressed if not (default and form == "rows" and v.rows is ABSENT)]
    messages = [numbered(form, n, x=getattr(value, form)) for n, (form, value) in enumerate(explicit)]
    messages += [numbered(form, len(explicit) + n) for n, form in enumerate(FORMATS)]
    sealed = server.seal(table, messages)
    assert sealed.dead == ()
    assert sealed.block is not None
    # when the block is inserted
    server.insert(sealed.block)
    # then the server shows the values, and its own block of them is ours
    expected = [*(value.shown for _, value in explicit), *[shown] * len(FORMATS)]
    assert [_as_shown_today(text, case.type) for text in server.read("x")] == expected
    own = server.http(f"SELECT x, n FROM {server.name} ORDER BY n FORMAT Native")
    assert _without_zone(own) == _without_zone(sealed.block.body)


def _as_shown_today(text: str, type_: str) -> str:
    """18.16 shows a Decimal with all digits of its scale, and the first moment of time as no time."""
    if "Decimal" in type_ and "." in text:
        return text.rstrip("0").rstrip(".")
    if text == "1970-01-01 06:28:15":  # its calendar ends with 2105
        return "2106-02-07 06:28:15"
    first = {"Date": "1970-01-01", "DateTime('UTC')": "1970-01-01 00:00:00"}.get(type_, "1970-01-01 01:00:00")
    return first if text.startswith("0000-00-00") else text


def _without_zone(block: bytes) -> bytes:
    """18.16 leaves the time zone out of a file's header, later servers do not."""
    for zone in (b"UTC", b"Europe/Berlin"):
        spelled = b"DateTime('" + zone + b"')"
        block = block.replace(bytes([len(spelled)]) + spelled, b"\x08DateTime")
    return block


EXPRESSIONS = [
    ("Date", "toDate(ts)"),
    ("UInt64", "cityHash64(s)"),
    ("String", "concat(lower(s), '-', toString(a))"),
    ("UInt8", "length(s)"),
    ("Nullable(String)", "if(a > 3, s, NULL)"),
    ("Float32", "a / 3"),
    ("Decimal(9, 2)", "a"),
    ("UUID", "toUUID('00112233-4455-6677-8899-aabbccddeeff')"),
    ("FixedString(20)", "toFixedString(s, 20)"),
    ("Enum8('low' = 1, 'high' = 2)", "CAST(if(a > 3, 'high', 'low'), 'Enum8(\\'low\\' = 1, \\'high\\' = 2)')"),
    ("DateTime", "toStartOfHour(ts) + 60"),
    ("Int8", "-a"),
    ("LowCardinality(String)", "upper(s)"),
    ("UInt16", "length(tags)"),
]


@pytest.mark.parametrize(("type_", "expression"), EXPRESSIONS, ids=[text for _, text in EXPRESSIONS])
def test_a_missing_column_is_what_the_server_itself_would_have_filled_in(
    server: Server, type_: str, expression: str
) -> None:
    # given rows with and without the column, in all formats
    columns = f"n UInt32, a Int16, s String, ts DateTime, tags Array(UInt8), x {type_} DEFAULT {expression}"
    table = server.create(columns)
    rows = [(n * 3, f"Text {n}", 1_600_000_000 + n * 5000) for n in range(4)]
    messages: list[tuple[str, dict[str, Any]]] = []
    for a, s, ts in rows:
        messages += [
            numbered("rows", len(messages), a=a, s=s.encode(), ts=ts, tags=[1, 2]),
            numbered("json", len(messages) + 1, a=a, s=s, ts=ts, tags=[1, 2]),
            numbered(
                "nucolumnar",
                len(messages) + 2,
                a={"int_value": a},
                s={"string_value": s.encode()},
                ts={"timestamp": ts * 1000},
                tags={"list_value": [{"int_value": 1}, {"int_value": 2}]},
            ),
        ]
    sealed = server.seal(table, messages)
    assert sealed.dead == ()
    assert sealed.block is not None
    server.insert(sealed.block)
    # when the server fills the same rows in by itself
    filled = server.read("x")
    known = {name for (name,) in server.server.execute("SELECT name FROM system.settings")}
    settings = {name: 1 for name in ("allow_experimental_low_cardinality_type",) if name in known}
    server.replica.query(f"CREATE TABLE {server.name}_own ({columns}) ENGINE = Memory", settings=settings)
    try:
        server.replica.query(
            f"INSERT INTO {server.name}_own (n, a, s, ts, tags) SELECT n, a, s, ts, tags FROM {server.name}"
        )
        own = server.http(f"SELECT x FROM {server.name}_own ORDER BY n FORMAT TSV").decode().split("\n")[:-1]
    finally:
        server.replica.query(f"DROP TABLE {server.name}_own")
    # then nothing is different, and a second builder gets the same bytes
    assert filled == own
    again = server.seal(table, messages)
    assert again.block is not None
    assert (again.block.crc, again.block.body) == (sealed.block.crc, sealed.block.body)


def test_a_default_that_is_the_time_is_that_of_the_message_in_kafka(server: Server) -> None:
    table = server.create(
        "n UInt32, at DateTime DEFAULT now(), day Date DEFAULT toDate(at), explicit Date DEFAULT today()"
    )
    sealed = server.seal(
        table, [numbered("json", 0), numbered("rows", 1, at=86400), numbered("json", 2, day="2001-02-03")]
    )
    assert sealed.dead == ()
    assert sealed.block is not None
    server.insert(sealed.block)
    assert server.read("toUInt32(at)") == [str(TIME_MS // 1000), "86400", str(TIME_MS // 1000)]
    assert server.read("day") == ["2023-11-14", "1970-01-02", "2001-02-03"]
    assert server.read("explicit") == ["2023-11-14"] * 3
    # a message without a timestamp, of a producer that switched them off, has no answer
    dead = server.seal(table, [numbered("json", 0)], timestamp_ms=-1).dead
    assert [(letter.reason, letter.detail) for letter in dead] == [("NoTimestamp", "column at (DateTime), row 1: null")]


def test_a_row_whose_default_fails_makes_exactly_its_message_bad(server: Server) -> None:
    table = server.create("n UInt32, s String, x UInt32 DEFAULT toUInt32(s)")
    good = [numbered("json", n, s=str(n)) for n in range(20)]
    messages = [
        *good[:7],
        numbered("json", 7, s="seven"),
        *good[8:12],
        numbered("json", 12, s="dozen", x=1),
        *good[13:],
    ]
    sealed = server.seal(table, messages)
    assert [(letter.offset, letter.reason, letter.detail) for letter in sealed.dead] == [
        (7, "DefaultFailed", "column x (UInt32), row 1: null")
    ]
    assert sealed.block is not None
    server.insert(sealed.block)
    assert server.read("x") == [str(n if n != 12 else 1) for n in range(20) if n != 7]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ("n UInt32, x UUID DEFAULT generateUUIDv4()", "generateUUIDv4"),
        ("n UInt32, x UInt32 DEFAULT rand()", "rand"),
        ("n UInt32, m UInt32 MATERIALIZED n + 1, x UInt32 DEFAULT m", "m is no column"),
        ("n UInt32, x Array(UInt8) DEFAULT [1, 2]", "absent from empty"),
        ("n UInt32, x DateTime MATERIALIZED now()", "stored twice"),
    ],
)
def test_a_table_that_a_replay_could_not_repeat_is_refused_with_the_expression(
    server: Server, columns: str, named: str
) -> None:
    table = server.create(columns)
    with pytest.raises(Permanent, match=named) as refused:
        server.seal(table, [])
    assert refused.value.reason == "UnsupportedDefault"
    assert "column x" in str(refused.value)


@pytest.mark.parametrize(
    ("derived", "expression", "shown"),
    [
        ("JSON", "text", '{"a":1}'),
        ("Dynamic", "CAST(text, 'Dynamic')", '{"a": 1}'),
        ("Variant(String, UInt8)", "CAST(text, 'Variant(String, UInt8)')", '{"a": 1}'),
        ("BFloat16", "toFloat32(length(text))", "8"),
    ],
)
def test_a_type_that_cannot_be_sent_is_refused_and_can_be_derived_from_text(
    server: Server, derived: str, expression: str, shown: str
) -> None:
    if server.oldest:
        pytest.skip("18.16 has no such types")
    with pytest.raises(Permanent) as refused:
        server.seal(server.create(f"n UInt32, text String, x {derived}"), [])
    assert refused.value.reason == "UnsupportedType"
    assert derived in str(refused.value)
    table = server.create(f"n UInt32, text String, x {derived} MATERIALIZED {expression}")
    sealed = server.seal(table, [numbered("json", n, text='{"a": 1}') for n in range(2)])
    assert sealed.block is not None
    server.insert(sealed.block)
    assert [text.replace("\\", "") for text in server.read("x")] == [shown] * 2
