"""Tables of hundreds of columns of which a message names one: a block ends by what its rows take, not its messages."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from blockhouse.config.pipeline import MAX_BLOCK_BYTES, MAX_ROWS
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks import collecting
from blockhouse_aggregator.blocks.build import BlockBuilder, EncodedBlock
from blockhouse_aggregator.blocks.collecting import DECODED_STEP, MAX_DECODED, Limits, TableRound
from blockhouse_aggregator.wire.formats import Format

COLUMNS = 300
HISTORY = TableHistory(
    id=1,
    name="default.wide",
    revisions=(first_revision([ServerColumn(name=f"c{i}", type="UInt64") for i in range(COLUMNS)]),),
)
REVISION = HISTORY.revisions[0]
BATCH: Any = row_batch_class(HISTORY, REVISION)
STREAM = StreamId("a", "events", 0)


@dataclass(frozen=True)
class Message:
    number: int
    body: bytes

    def offset(self) -> int:
        return self.number

    def value(self) -> bytes:
        return self.body

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None

    def set_headers(self, headers: Any, /) -> None:
        raise AssertionError

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def leader_epoch(self) -> int | None:
        return None


def sparse(rows: int) -> bytes:
    return bytes(BATCH(rows=[{"c7": 1}] * rows).SerializeToString())


def filled(messages: list[Message]) -> tuple[TableRound, int]:
    """A round of the table that has taken what it takes of these messages, with default limits when catching up."""
    limits = Limits(max_bytes=64 << 20, max_rows=MAX_ROWS, max_age=1.0)
    table = TableRound("default.wide", limits, lowest=0, builder=BlockBuilder(HISTORY, REVISION, STREAM))
    taken = 0
    while taken < len(messages) and not table.full:
        rest = messages[taken : taken + 5000]
        taken += table.take(rest, [m.body for m in rest], Format.ROWS, room=96 << 20)
    return table, taken


def test_a_block_of_sparse_messages_ends_by_its_encoded_size_and_the_rest_is_for_the_next() -> None:
    body = sparse(10)
    messages = [Message(number, body) for number in range(20_000)]  # 1.2 MB that would encode to 480 MB
    table, taken = filled(messages)
    block, dead = table.seal(MAX_ROWS)
    assert block is not None
    assert dead == ()
    assert taken < len(messages)
    assert MAX_DECODED / 2 < len(block.body) < MAX_DECODED + 2 * DECODED_STEP
    assert (block.messages, block.end) == (taken, taken - 1)


def test_a_replay_of_such_a_block_has_the_same_bytes() -> None:
    messages = [Message(number, sparse(10)) for number in range(5_000)]
    block, _ = filled(messages)[0].seal(MAX_ROWS)
    assert block is not None
    builder = BlockBuilder(HISTORY, REVISION, STREAM)
    for message in messages[: block.messages]:
        builder.append(message.offset(), message.value(), message.timestamp()[1])
    assert builder.seal(MAX_ROWS).block == block


def test_messages_that_grow_in_the_midst_of_a_block_are_cut_before_the_server_would_cut() -> None:
    dense = bytes(BATCH(rows=[{f"c{i}": 1 << 60 for i in range(COLUMNS)}]).SerializeToString())
    body = sparse(2_000)
    messages = [Message(number, dense) for number in range(3_000)]
    messages += [Message(number, body) for number in range(3_000, 3_200)]
    table, _ = filled(messages)
    block, _ = table.seal(MAX_ROWS)
    assert block is not None
    assert len(block.body) < MAX_BLOCK_BYTES
    assert block.rows <= BlockBuilder(HISTORY, REVISION, STREAM).most_rows


def test_one_message_whose_rows_no_block_can_hold_is_dead_and_its_neighbours_are_not() -> None:
    builder = BlockBuilder(HISTORY, REVISION, STREAM)
    for offset, rows in enumerate((1, builder.most_rows + 1, 2)):
        builder.append(offset, sparse(rows), 0)
    sealed = builder.seal(MAX_ROWS)
    assert [(dead.offset, dead.reason) for dead in sealed.dead] == [(1, "TooManyRows")]
    assert sealed.block is not None
    assert sealed.block.rows == 3


def blocks_of(messages: list[Message]) -> list[EncodedBlock]:
    """The log cut as rounds cut it: each takes what it takes, and the next begins behind its last message."""
    found = []
    while messages:
        table, taken = filled(messages)
        block, _ = table.seal(MAX_ROWS)
        if table.cursor is not None:
            taken = table.cursor - messages[0].number
        messages = messages[taken:]
        if block is not None:
            found.append(block)
    return found


@pytest.mark.parametrize("seed", [1])
def test_every_block_of_a_log_of_odd_messages_is_rebuilt_from_its_range_alone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a block ends depends on how its rows were decoded until then; what is in it must not."""
    monkeypatch.setattr(collecting, "MAX_DECODED", 4 << 20)
    monkeypatch.setattr(collecting, "DECODED_STEP", 1 << 20)
    chance = Random(seed)
    dense = bytes(BATCH(rows=[{f"c{i}": 1 << 60 for i in range(COLUMNS)}]).SerializeToString())
    bodies = [sparse(1), sparse(50), sparse(500), dense, b"\xff" * 40, b""]
    messages = [Message(n, body) for n, body in enumerate(chance.choices(bodies, [50, 20, 1, 20, 3, 3], k=400))]
    blocks = blocks_of(messages)
    assert len(blocks) >= 2
    assert [block.begin for block in blocks] == sorted(block.begin for block in blocks)
    for block in blocks:
        builder = BlockBuilder(HISTORY, REVISION, STREAM)
        for message in messages[block.begin : block.end + 1]:
            builder.append(message.offset(), message.value(), message.timestamp()[1])
            if chance.random() < 0.01:
                builder.decode()
        assert builder.seal(MAX_ROWS).block == block
