"""The columns of a table's rows from what any format has read of its messages: one reader, whatever was sent.

It fills in defaults, judges values against their types, and takes whole messages out. Must never judge a row by its
neighbours, and never let a row of a bad message through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blockhouse.config.pipeline import MAX_BLOCK_BYTES, MAX_ROWS
from blockhouse.errors import Permanent
from blockhouse.schema.kinds import holds_null
from blockhouse.schema.model import Revision, TableHistory
from blockhouse.schema.parse import parse_type
from blockhouse.schema.types import Array, Type, least_bytes
from blockhouse_aggregator.wire.batch import BadMessage, DecodedBatch, without
from blockhouse_aggregator.wire.columns import Column, Fill, Flaw, Mask, field_type, read_column, stand_in
from blockhouse_aggregator.wire.filling import Evaluate, Filler, plan
from blockhouse_aggregator.wire.refused_values import refused as refused_value

LARGEST_FIXED = MAX_BLOCK_BYTES // 2
"""Bytes that the fixed-width part of a block's rows may take, which leaves as much for the rest."""


def most_rows(revision: Revision) -> int:
    """Rows that fit into one block of the table, or into one message for it. Of the schema alone: whether a message is
    good must not depend on a setting, or a replay under another setting would build another block."""
    width = sum(least_bytes(parse_type(column.type)) for column in revision.insertable)
    return min(MAX_ROWS, LARGEST_FIXED // max(1, width))


@dataclass(frozen=True, slots=True)
class Sent:
    """One column as a format has read it, a value per row, in `field_type`.

    `absent` marks rows whose message does not have the column: they take its default, and null is a value. Where the
    format does not distinguish the two it is None, and null means absent. `flaws` are rows the format has found bad,
    of which `values` has nothing: `original` gives what was sent in such a row, where it is known.
    """

    values: pa.Array
    absent: Mask | None = None
    flaws: tuple[Flaw, ...] = ()
    original: Callable[[int], object] | None = None

    def value(self, row: int) -> object:
        """What was sent in a row, or the beginning of it."""
        value = self.values[row]
        return value if value.is_valid or self.original is None else self.original(row)


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column that producers fill; `default` stands where they do not, unless the server is `asked`."""

    name: str
    type: Type
    declared: str
    default: Fill
    asked: bool


class RowReader:
    """Reads the rows of one revision. Raises Permanent: UnsupportedType, UnsupportedDefault, or NoColumns."""

    def __init__(self, table: TableHistory, revision: Revision, evaluate: Evaluate | None = None) -> None:
        if not revision.row:
            raise Permanent(f"table {table.name} has no column a producer could fill", reason="NoColumns")
        defaults = plan(table, revision)
        asked = {expression.column for expression in defaults.expressions}
        self.columns = tuple(
            RowColumn(c.name, parse_type(c.type), c.type, defaults.constants[c.name], c.name in asked)
            for c in revision.row
        )
        self._filler = Filler(revision, defaults.expressions, evaluate)
        self._nested = _nested_groups(self.columns)
        self._most_rows = most_rows(revision)

    def read(
        self,
        sent: Mapping[str, Sent],
        counts: npt.NDArray[np.int64],
        bad: Mapping[int, BadMessage],
        timestamps_ms: Sequence[int],
    ) -> DecodedBatch:
        """`counts` are the rows of each message, `bad` the messages that the format refuses. Columns that are not in
        `sent` are absent in every row."""
        rows = int(counts.sum())
        refused = dict(bad)
        for index in np.flatnonzero(counts > self._most_rows).tolist():
            refused[index] = BadMessage(index, "TooManyRows", f"{counts[index]} rows, a block holds {self._most_rows}")
        found = {column.name: _read(column, sent.get(column.name), rows) for column in self.columns}
        absent = {c.name: _absent(sent.get(c.name), rows) for c in self.columns if c.asked}
        if any(mask.any() for mask in absent.values()):
            self._fill(found, absent, counts, refused, timestamps_ms)
        flaws = [(column, flaw) for column in self.columns for flaw in found[column.name].flaws]
        flaws += self._unequal(found)
        for column, flaw in flaws:
            for index, message in _flawed(column, flaw, sent.get(column.name), counts):
                refused.setdefault(index, message)
        columns = {name: values.values for name, values in found.items()}
        return without(columns, counts, refused)

    def _fill(
        self,
        found: dict[str, Column],
        absent: Mapping[str, Mask],
        counts: npt.NDArray[np.int64],
        refused: Mapping[int, BadMessage],
        timestamps_ms: Sequence[int],
    ) -> None:
        messages = np.isin(np.arange(len(counts)), list(refused))
        message_of = np.repeat(np.arange(len(counts)), counts)
        for column in found.values():
            for flaw in column.flaws:
                messages[message_of[flaw.rows]] = True
        times = np.array(timestamps_ms, np.int64) if len(timestamps_ms) else np.zeros(len(counts), np.int64)
        self._filler.fill(found, absent, ~messages[message_of], times[message_of])

    def _unequal(self, found: Mapping[str, Column]) -> list[tuple[RowColumn, Flaw]]:
        flaws = []
        for first, *others in self._nested:
            lengths = pc.list_value_length(found[first.name].values)
            for column in others:
                unequal = pc.not_equal(lengths, pc.list_value_length(found[column.name].values))
                if pc.any(unequal).as_py():
                    flaws.append((column, Flaw(unequal.to_numpy(zero_copy_only=False), "UnequalNested")))
        return flaws


def _flawed(
    column: RowColumn, flaw: Flaw, sent: Sent | None, counts: npt.NDArray[np.int64]
) -> Iterator[tuple[int, BadMessage]]:
    """The messages of a flaw by index, each with the first of its rows."""
    rows = np.flatnonzero(flaw.rows)
    members, firsts = np.unique(np.repeat(np.arange(len(counts)), counts)[rows], return_index=True)
    begins = np.cumsum(counts) - counts
    for index, row in zip(members.tolist(), rows[firsts].tolist(), strict=True):
        value = sent.value(row) if sent is not None else None
        yield (
            index,
            BadMessage(index, flaw.reason, refused_value(column.name, row - begins[index], value, column.declared)),
        )


def _read(column: RowColumn, sent: Sent | None, rows: int) -> Column:
    if sent is None:
        return read_column(pa.nulls(rows, field_type(column.type)), column.type, column.default)
    values, fill, flaws = sent.values, column.default, sent.flaws
    if sent.absent is not None and values.null_count:
        null: Mask = values.is_null().to_numpy(zero_copy_only=False) & ~sent.absent
        if holds_null(column.type):
            if fill is not None:
                values = pc.if_else(pa.array(sent.absent), stand_in(fill, values.type), values)
            fill = None
        elif null.any():
            flaws = (*flaws, Flaw(null, "NotNullable"))
    found = read_column(values, column.type, fill)
    return Column(found.values, (*flaws, *found.flaws)) if flaws else found


def _absent(sent: Sent | None, rows: int) -> Mask:
    if sent is None:
        return np.ones(rows, np.bool_)
    if sent.absent is not None:
        return sent.absent
    absent: Mask = sent.values.is_null().to_numpy(zero_copy_only=False)
    return absent


def _nested_groups(columns: Sequence[RowColumn]) -> tuple[tuple[RowColumn, ...], ...]:
    """The columns of every flattened Nested (`n.a`, `n.b`): the server refuses a block in which lengths differ."""
    groups: dict[str, list[RowColumn]] = {}
    for column in columns:
        prefix, dot, _ = column.name.partition(".")
        if dot and isinstance(column.type, Array):
            groups.setdefault(prefix, []).append(column)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)
