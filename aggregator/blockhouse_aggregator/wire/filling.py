"""Columns that messages lack and whose DEFAULT is no constant: asked of a server, for exactly those rows.

Must never let one row's answer depend on another row, nor on when it is asked: a replay has to get the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blockhouse.errors import Permanent, Retryable
from blockhouse.schema.defaults import constant_default
from blockhouse.schema.expressions import (
    ROW,
    TIME,
    TIME_MS,
    Expression,
    in_order,
    not_repeatable,
    server_expression,
)
from blockhouse.schema.kinds import bare, holds_null
from blockhouse.schema.model import Revision, TableHistory
from blockhouse.schema.parse import parse_type
from blockhouse.schema.types import (
    Fixed,
    Layout,
    Leaf,
    Proto,
    Type,
    zero,
)
from blockhouse_aggregator.wire.columns import Column, Fill, Flaw, Mask, field_type, read_column
from blockhouse_aggregator.wire.native import ColumnData, encode_block
from blockhouse_aggregator.wire.texts import read_texts

_LAST_SECOND = (1 << 32) - 1


class Evaluate(Protocol):
    """Asks a server."""

    def __call__(self, select: str, body: bytes) -> Sequence[Any]:
        """The one column that `select` gives over the external table `expressions.ROWS`, whose Native bytes are
        `body`. Raises ValueError when a row's values have no answer, Retryable when the server cannot be asked now.
        """


@dataclass(frozen=True, slots=True)
class Plan:
    """What stands in absent columns: a constant for each, and expressions, in the order in which they can be asked."""

    constants: Mapping[str, Fill]
    expressions: tuple[Expression, ...]


def plan(table: TableHistory, revision: Revision) -> Plan:
    """Raises Permanent(UnsupportedDefault), naming table, column and expression, for what no replay could repeat."""
    known = {column.name: column for column in revision.row}
    constants: dict[str, Fill] = {}
    expressions = []
    for column in revision.columns:
        if function := not_repeatable(column):
            raise Permanent(
                f"table {table.name}: MATERIALIZED {column.default_expression} of column {column.name}: {function} "
                "differs whenever the same block is sent again, which would then be stored twice. Let producers send "
                "it, or derive it from the row, e.g. cityHash64(id)",
                reason="UnsupportedDefault",
            )
    for column in revision.row:
        try:
            constants[column.name] = constant_default(table.name, column)
        except Permanent as no_constant:
            constants[column.name] = zero(parse_type(column.type))
            try:
                expressions.append(server_expression(column, known))
            except ValueError as error:
                raise Permanent(
                    f"{no_constant}. Nor can it be asked of the server: {error}", reason="UnsupportedDefault"
                ) from error
    try:
        return Plan(constants, in_order(expressions))
    except ValueError as error:
        raise Permanent(f"table {table.name}: {error}", reason="UnsupportedDefault") from error


class Filler:
    """Puts the answers where columns are absent."""

    def __init__(self, revision: Revision, expressions: Sequence[Expression], evaluate: Evaluate | None) -> None:
        self._types = {column.name: (column.type, parse_type(column.type)) for column in revision.row}
        self._expressions = expressions
        self._evaluate = evaluate

    def fill(
        self, found: dict[str, Column], absent: Mapping[str, Mask], good: Mask, times_ms: npt.NDArray[np.int64]
    ) -> None:
        """Replaces columns in `found`. `absent` marks the rows without the column, `good` those of messages that are
        not refused already, `times_ms` is each row's Kafka timestamp."""
        for expression in self._expressions:
            absentees = np.flatnonzero(absent[expression.column] & good)
            if len(absentees):
                found[expression.column] = self._filled(expression, found, absentees, times_ms)

    def _filled(
        self,
        expression: Expression,
        found: Mapping[str, Column],
        absentees: npt.NDArray[np.intp],
        times_ms: npt.NDArray[np.int64],
    ) -> Column:
        column = found[expression.column]
        _, type_ = self._types[expression.column]
        mask = np.zeros(len(column.values), np.bool_)
        flaws = column.flaws
        if expression.timed:
            timeless = (times_ms[absentees] <= 0) | (times_ms[absentees] // 1000 > _LAST_SECOND)
            if timeless.any():
                flaws += (_flaw(absentees[timeless], len(mask), "NoTimestamp"),)
                absentees = absentees[~timeless]
        rows = pa.array(absentees)
        needed = {name: found[name].values.take(rows) for name in expression.needs}
        answers, failed = self._ask(expression, needed, times_ms[absentees])
        if failed.any():
            flaws += (_flaw(absentees[failed], len(mask), "DefaultFailed"),)
            absentees = absentees[~failed]
        read = _read_answers(answers, type_)
        mask[absentees] = True
        flaws += tuple(_flaw(absentees[flaw.rows], len(mask), flaw.reason) for flaw in read.flaws)
        return Column(pc.replace_with_mask(column.values, pa.array(mask), read.values), flaws)

    def _ask(
        self, expression: Expression, needed: Mapping[str, pa.Array], times_ms: npt.NDArray[np.int64]
    ) -> tuple[list[Any], Mask]:
        """Answers for the rows that have one, and which have none: a row that fails must not take others with it."""
        if not len(times_ms):
            return [], np.zeros(0, np.bool_)
        if self._evaluate is None:
            raise Retryable(f"DEFAULT of column {expression.column}: no server to ask")
        try:
            return list(self._evaluate(expression.select, self._rows(expression, needed, times_ms))), np.zeros(
                len(times_ms), np.bool_
            )
        except ValueError:
            if len(times_ms) == 1:
                return [], np.ones(1, np.bool_)
        half = len(times_ms) // 2
        (first, failed), (second, also) = (
            self._ask(expression, {name: values[part] for name, values in needed.items()}, times_ms[part])
            for part in (slice(0, half), slice(half, None))
        )
        return first + second, np.concatenate([failed, also])

    def _rows(self, expression: Expression, needed: Mapping[str, pa.Array], times_ms: npt.NDArray[np.int64]) -> bytes:
        header = [(ROW, "UInt32"), *((name, self._types[name][0]) for name in expression.needs)]
        columns: dict[str, ColumnData] = {ROW: np.arange(len(times_ms)), **needed}
        if expression.timed:
            header += [(TIME, "DateTime"), (TIME_MS, "Int64")]
            columns |= {TIME: times_ms // 1000, TIME_MS: times_ms}
        return encode_block(header, columns)


def _read_answers(answers: Sequence[Any], type_: Type) -> Column:
    leaf = bare(type_)
    assert isinstance(leaf, Leaf), "only such defaults are asked for"
    if isinstance(leaf, Fixed) and leaf.layout in (Layout.SIGNED, Layout.UNSIGNED):
        values, flaws = read_texts(pa.array(answers, pa.binary()), leaf)
        assert not flaws, "the server has converted these"
    elif leaf.proto is Proto.BOOL:
        values = pa.array(answers, pa.uint8()).cast(pa.bool_())
    elif leaf.proto is Proto.STRING:
        values = pa.array(answers, pa.binary()).cast(pa.string())
    else:
        values = pa.array(answers, field_type(type_))
    return read_column(values, type_, None if holds_null(type_) else zero(type_))


def _flaw(rows: npt.NDArray[np.intp], length: int, reason: str) -> Flaw:
    mask = np.zeros(length, np.bool_)
    mask[rows] = True
    return Flaw(mask, reason)
