"""The texts that `docs/metadata.md` shows, the sizes it promises, and how each refusal is worded."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from blockhouse.metadata import codec
from blockhouse.metadata.ebay import EbayMetadata, EbayTable
from blockhouse.metadata.errors import MetadataInvalid, MetadataUnreadable
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window

DOCUMENT = (Path(__file__).parents[3] / "docs" / "metadata.md").read_text()
NOW = 1_793_500_000_123
TOPIC_ID = "ZrK3cW8zTKi0qU1yq1p9Ng"
EXAMPLE = Metadata(
    replica="r1",
    seq=69,
    intent_ms=NOW,
    topic_id=TOPIC_ID,
    leader_epoch=3,
    position=1264,
    window=Window(reference=1100, sealed=150, dead=0, holes=4),
    tables=(TableEntry(1, InFlight(1200, 1263, 40, 1, 0x1234ABCD, NOW)), TableEntry(7, None, 1210, 10)),
)
EXAMPLE_TEXT = "2;r1;ZrK3cW8zTKi0qU1yq1p9Ng;1x;mvx7lcvv;3;xc;1s;4k.46.0.4;1.0.1r.14.1051uoct,6~a.a;0x5pamf;"


ID = 36**3


def in_flight(tables: int, *, span: int, messages: int, age_ms: int, revision: int = 1) -> Metadata:
    """`tables` tables in flight in one round of `span` offsets of a stream that has come far; ids as the schema history
    gives them, with three random digits."""
    low = 10**12
    block = InFlight(low + 1, low + span - 2, messages, revision, 0xFEEDBEEF, NOW - age_ms)
    entries = [TableEntry(ID, replace(block, begin=low))]
    entries += [TableEntry(ID * table, replace(block, begin=low + span // 2)) for table in range(2, tables + 1)]
    position = low + span - 1
    window = Window(position - 10**6, 10**6 - 3, 2, 1)
    return Metadata("replica1", 10**9, NOW, TOPIC_ID, 40, position, window, tuple(entries))


def per_table(**kind: int) -> float:
    """What one more table costs, in units."""
    return (codec.encoded_size(in_flight(101, **kind)) - codec.encoded_size(in_flight(1, **kind))) / 100


def test_the_documented_example_is_what_the_code_writes() -> None:
    assert EXAMPLE_TEXT in DOCUMENT
    assert codec.encode(EXAMPLE) == EXAMPLE_TEXT
    assert codec.decode(EXAMPLE_TEXT, 1200) == EXAMPLE


def test_140_tables_in_flight_fit_the_brokers_limit() -> None:
    fresh = in_flight(140, span=46_656, messages=300, age_ms=0)
    old = in_flight(140, span=46_656, messages=300, age_ms=1_200)

    assert codec.encoded_size(fresh) < codec.encoded_size(old) <= 4_095


def test_costs_of_an_entry_are_the_documented_ones() -> None:
    documented = re.findall(r"^\| in flight,.*\| (\d+) \| \d+ \|$", DOCUMENT, re.MULTILINE)

    measured = [
        per_table(span=46_656, messages=300, age_ms=0),
        per_table(span=46_656, messages=300, age_ms=1_000),
        per_table(span=1_679_616, messages=1_000, age_ms=60_000, revision=12),
    ]

    assert measured == [int(units) for units in documented]
    assert measured[0] <= 27


def test_cost_outside_the_entries_is_the_documented_one() -> None:
    documented = re.search(r"= (\d+) units \(plus 55", DOCUMENT)
    assert documented is not None

    text = codec.encode(in_flight(1, span=46_656, messages=300, age_ms=0))

    entries = text.split(";")[-3]
    assert len(text) - len(entries) == int(documented[1])


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (replace(EXAMPLE, replica="r;1"), "has other than"),
        (replace(EXAMPLE, seq=-1), "negative"),
        (replace(EXAMPLE, position=1 << 63), "below 2^63"),
        (replace(EXAMPLE, tables=EXAMPLE.tables[::-1]), "must be positive and rise"),
        (replace(EXAMPLE, tables=(EXAMPLE.tables[1], TableEntry(8))), "neither in flight nor lagging"),
        (replace(EXAMPLE, tables=(EXAMPLE.tables[1], TableEntry(8, None, 1265, 0))), "beyond P"),
        (
            replace(EXAMPLE, tables=(EXAMPLE.tables[1], TableEntry(8, InFlight(1200, 1264, 1, 1, 1, NOW)))),
            "does not lie below P",
        ),
        (
            replace(EXAMPLE, tables=(EXAMPLE.tables[1], TableEntry(8, InFlight(1200, 1201, 3, 1, 1, NOW)))),
            "3 messages do not fit",
        ),
    ],
)
def test_a_contradiction_is_not_written(metadata: Metadata, message: str) -> None:
    with pytest.raises(MetadataInvalid, match=re.escape(message)):
        codec.encode(metadata)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("hello", "not a multiple of 3"),
        ("t,1,x", "table t: 'x' is not an integer"),
        ("t,5,3", "begin 5 and end 3 are no range"),
        ("t,1,2,t,3,4", "given twice"),
        ("2;", "truncated or altered"),
        ("3;r1;", "version 3 is not known to this release"),
        ("2,,r1,t,1,2,3,,0", "not version 1"),
        ("1,,r1,t,1,2,3", "not version 1"),
        ("1,,r1,t,1,2,,0", "not a multiple of 4"),
        ("1,,r1,t,1,2,3,,", "reference: '' is not an integer"),
        (EXAMPLE_TEXT[:-2], "truncated or altered"),
        (EXAMPLE_TEXT.replace("1x", "1y"), "checksum"),
    ],
)
def test_rubbish_is_refused_with_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(MetadataUnreadable, match=re.escape(message)):
        codec.decode(text)


def test_version_0_is_read() -> None:
    decoded = codec.decode("clicks,1,10,views,15,14", 1)

    assert decoded == EbayMetadata(0, None, None, {"clicks": EbayTable(1, 10), "views": EbayTable(15, 14)})
    assert isinstance(decoded, EbayMetadata)
    assert [table.in_flight for table in decoded.tables.values()] == [True, False]


def test_version_1_is_read_and_written() -> None:
    text = "1,,replica1,clicks,1,10,10,views,15,14,4,,-1"

    decoded = codec.decode(text, 1)

    assert decoded == EbayMetadata(1, "replica1", -1, {"clicks": EbayTable(1, 10, 10), "views": EbayTable(15, 14, 4)})
    assert codec.encode(decoded) == text


def test_version_1_without_tables_states_nothing_of_the_offset() -> None:
    assert codec.decode("1,,r1,,700", 12) == EbayMetadata(1, "r1", 700, {})


def test_version_1_at_another_offset_is_refused() -> None:
    with pytest.raises(MetadataUnreadable, match="belongs to offset 1, but was committed with 2"):
        codec.decode("1,,r1,t,1,10,10,,0", 2)


@pytest.mark.parametrize(
    "metadata",
    [
        EbayMetadata(0, None, None, {"t": EbayTable(1, 2)}),
        EbayMetadata(1, "r1", 0, {"t": EbayTable(1, 2)}),
        EbayMetadata(1, "r,1", 0, {}),
        EbayMetadata(1, "r1", 0, {"t,": EbayTable(1, 2, 1)}),
        EbayMetadata(1, "r1", 0, {"t": EbayTable(5, 2, 1)}),
    ],
)
def test_version_1_is_not_written_when_something_is_missing(metadata: EbayMetadata) -> None:
    with pytest.raises(MetadataInvalid):
        codec.encode(metadata)
