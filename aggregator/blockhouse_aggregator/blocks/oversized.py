"""Messages whose rows alone are more than a block may hold: a small message may have lists of wide elements.

Whether a message is one must depend on nothing but the message and the schema, or a replay would build another block.
So what is near the limit is encoded by itself, and only that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blockhouse.config.pipeline import MAX_BLOCK_BYTES
from blockhouse_aggregator.wire.batch import BadMessage, DecodedBatch, without

SUSPICIOUS = MAX_BLOCK_BYTES // 8
"""Bytes in memory below which rows are certainly no block's worth: what grows most when it is encoded are bits, which
become bytes."""

Columns = Mapping[str, pa.Array]
Encode = Callable[[int, Columns], int]
"""The bytes of the block that has nothing but the message at an index, whose rows are given."""


def without_oversized(batch: DecodedBatch, encoded: Encode) -> DecodedBatch:
    """The batch, in which messages that no block can hold are bad: `TooLarge`."""
    found = {}
    for index, columns in _suspects(batch.columns, batch.rows_per_message):
        size = encoded(index, columns)
        if size >= MAX_BLOCK_BYTES:
            text = f"its rows take {size} bytes, a block holds less than {MAX_BLOCK_BYTES}"
            found[index] = BadMessage(index, "TooLarge", text)
    if not found:
        return batch
    return without(batch.columns, batch.rows_per_message, {bad.index: bad for bad in batch.bad} | found)


def _suspects(columns: Columns, counts: npt.NDArray[np.int64], first: int = 0) -> Iterator[tuple[int, Columns]]:
    """Messages with so many bytes that they may be too large, with their rows; halving, for most batches have none."""
    if sum(column.nbytes for column in columns.values()) < SUSPICIOUS:
        return
    if len(counts) == 1:
        yield first, columns
        return
    half = len(counts) // 2
    rows = int(counts[:half].sum())
    yield from _suspects({name: column.slice(0, rows) for name, column in columns.items()}, counts[:half], first)
    yield from _suspects({name: column.slice(rows) for name, column in columns.items()}, counts[half:], first + half)
