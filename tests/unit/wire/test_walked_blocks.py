"""Blocks do not show which of their rows were walked: strings wait in two forms, and come out in one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder
from blockhouse_aggregator.wire.formats import Format
from blockhouse_aggregator.wire.rows import RowsDecoder
from blockhouse_aggregator.wire.walk import RowWalk

STREAM = StreamId("a", "events-0", 0)
COLUMNS = [
    ServerColumn(name="n", type="UInt32"),
    ServerColumn(name="text", type="String"),
    ServerColumn(name="other", type="String"),
    ServerColumn(name="upper", type="String", default_kind="DEFAULT", default_expression="upper(text)"),
    ServerColumn(name="_kafka_offset", type="UInt64"),
]
TABLE = TableHistory(id=1, name="db.t", revisions=(first_revision(COLUMNS),))
MESSAGE: Any = row_batch_class(TABLE, TABLE.revisions[0])


def message(*numbers: int, without: Sequence[str] = ()) -> bytes:
    rows = [{"n": n, "text": b"t%d" % n, "other": b"o" * (n % 200), "upper": b"U"} for n in numbers]
    kept = [{name: value for name, value in row.items() if name not in without} for row in rows]
    return bytes(MESSAGE(rows=kept).SerializeToString())


def lines(*numbers: int) -> bytes:
    return "\n".join(json.dumps({"n": n, "text": f"t{n}", "upper": "J"}) for n in numbers).encode()


def answers(_select: str, body: bytes) -> list[bytes]:
    """What a server would answer, were it asked for the length of its question."""
    return [b"%d" % len(body)] * int.from_bytes(body[1:2], "little")


def builder(batches: Sequence[Sequence[tuple[bytes, Format]]]) -> BlockBuilder:
    made, offset = BlockBuilder(TABLE, TABLE.revisions[0], STREAM, answers), 0
    for batch in batches:
        for payload, form in batch:
            made.append(offset, payload, 1, form)
            offset += 1
        made.decode()
    return made


@pytest.fixture
def walking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowWalk, "least_bytes", 0)


def unwalked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowWalk, "least_bytes", 1 << 40)


ROWS, JSON = Format.ROWS, Format.JSON
WHOLE = [(message(1, 2, 300), ROWS), (message(), ROWS), (message(4), ROWS)]
ABSENT = [(message(5, 6, without=("text", "other")), ROWS), (message(7), ROWS)]
STRANGE = [(message(8) + b"\x0a\x05\x1a\x01x\x08\x07", ROWS)]
BAD = [(message(9), ROWS), (b"\x10\x01", ROWS), (message(10, 11), ROWS)]
MIXED = [(message(12), ROWS), (lines(13, 14), JSON), (message(15, 16), ROWS)]


@pytest.mark.parametrize(
    "batches",
    [[WHOLE], [WHOLE, ABSENT], [STRANGE, WHOLE], [BAD, WHOLE], [MIXED], [WHOLE, MIXED, ABSENT, BAD]],
    ids=["whole", "absent", "strange", "bad", "mixed", "all"],
)
def test_a_block_is_the_same_however_its_rows_were_read(
    walking: None, monkeypatch: pytest.MonkeyPatch, batches: Sequence[Sequence[tuple[bytes, Format]]]
) -> None:
    made = builder(batches)
    sealed, part = made.seal(1000), made.part([(0, 0), (2, 0)])
    unwalked(monkeypatch)
    other = builder(batches)
    assert sealed == other.seal(1000)
    assert part == other.part([(0, 0), (2, 0)])


def test_a_default_is_asked_with_the_strings_themselves(walking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = [[(message(1, 2, 3, without=("upper",)), ROWS)]]
    walked = RowsDecoder(TABLE, TABLE.revisions[0])._walk
    assert walked is not None
    assert walked.read([payload for payload, _ in lacking[0]]) is not None
    block = builder(lacking).seal(1000).block
    assert block is not None
    unwalked(monkeypatch)
    assert builder(lacking).seal(1000).block == block
