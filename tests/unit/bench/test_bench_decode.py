"""What bench/decode.py compares is comparable: both sides turn the same messages into the same bytes."""

from __future__ import annotations

import pytest

from bench.decode import SHAPES, STREAM, Shape, messages, translated, vectorised, worker
from bench.decode_loop import loop, parser
from blockhouse_aggregator.wire.formats import Format


class Heard:
    """A socket that remembers what it was sent."""

    def __init__(self) -> None:
        self.data = b""

    def sendall(self, data: bytes) -> None:
        self.data += bytes(data)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_loop_writes_byte_for_byte_the_block_that_blockhouse_makes(shape: Shape) -> None:
    table, heard = shape.table(), Heard()
    payloads = messages(table, 500)
    block = vectorised(Format.ROWS, worker(table), table.name, payloads)
    assert loop(parser(table), table, payloads, STREAM, heard) == block.rows == 500
    assert heard.data == block.body


@pytest.mark.parametrize("form", [Format.JSON, Format.NUCOLUMNAR])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_format_gives_the_same_block(shape: Shape, form: Format) -> None:
    table = shape.table()
    payloads = messages(table, 500)
    same = vectorised(form, worker(table), table.name, translated(form, table, payloads))
    assert same.body == vectorised(Format.ROWS, worker(table), table.name, payloads).body
