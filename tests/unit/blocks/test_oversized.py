"""Messages whose rows alone are more than a block may hold are dead; many that together are, are cut."""

from __future__ import annotations

import json

import pytest

from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks import build, oversized
from blockhouse_aggregator.blocks.build import BlockBuilder, Sealed
from blockhouse_aggregator.wire.formats import Format

LIMIT = 1 << 16
WIDTH = 1000
NONE, MANY = 0, LIMIT // WIDTH + 1
"""Elements of a list, each of a thousand bytes, of which a message names none."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MAX_BLOCK_BYTES", LIMIT)
    monkeypatch.setattr(oversized, "MAX_BLOCK_BYTES", LIMIT)
    monkeypatch.setattr(oversized, "SUSPICIOUS", LIMIT // 8)


def builder(of: str = f"FixedString({WIDTH})") -> BlockBuilder:
    columns = [ServerColumn(name="id", type="UInt64"), ServerColumn(name="list", type=f"Array({of})")]
    history = TableHistory(id=1, name="default.lists", revisions=(first_revision(columns),))
    return BlockBuilder(history, history.revisions[0], StreamId("a", "events", 0))


def message(elements: int, value: object = "") -> bytes:
    return json.dumps({"id": 1, "list": [value] * elements}).encode()


def sealed(subject: BlockBuilder, *bodies: bytes, decode_after: frozenset[int] = frozenset()) -> Sealed:
    for offset, body in enumerate(bodies):
        subject.append(offset, body, 0, Format.JSON)
        if offset in decode_after:
            subject.decode()
    return subject.seal(MAX_ROWS)


@pytest.mark.parametrize("decode_after", [(), (0,), (1,), (0, 1), (2,)])
def test_such_a_message_is_dead_whatever_it_is_decoded_with_and_its_neighbours_are_not(
    decode_after: tuple[int, ...],
) -> None:
    bodies = [message(1), message(2), message(MANY), message(NONE)]
    found = sealed(builder(), *bodies, decode_after=frozenset(decode_after))
    assert [(dead.offset, dead.reason) for dead in found.dead] == [(2, "TooLarge")]
    assert found.block is not None
    assert (found.block.begin, found.block.end, found.block.rows) == (0, 3, 3)
    assert found.block.body == sealed(builder(), *bodies).block.body  # type: ignore[union-attr]


def test_what_is_one_byte_below_the_limit_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sealed(builder(), message(MANY - 2)).block
    assert whole is not None
    size = len(whole.body)
    for limit, dead in ((size + 1, ()), (size, ("TooLarge",))):
        monkeypatch.setattr(oversized, "MAX_BLOCK_BYTES", limit)
        monkeypatch.setattr(oversized, "SUSPICIOUS", limit // 8)
        assert tuple(each.reason for each in sealed(builder(), message(MANY - 2)).dead) == dead


def test_bits_that_become_bytes_are_found_too() -> None:
    found = sealed(builder("Bool"), message(1, True), message(LIMIT, True))
    assert [(dead.offset, dead.reason) for dead in found.dead] == [(1, "TooLarge")]


def test_messages_that_together_exceed_a_block_are_cut_and_none_is_dead() -> None:
    elements = LIMIT * 6 // 10 // WIDTH
    found = sealed(builder(), message(elements), message(elements), message(1))
    assert found.block is not None
    assert (found.block.end, found.cut_at, found.dead) == (0, 1, ())
    assert len(found.block.body) < LIMIT
