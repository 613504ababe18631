"""Rows that were sent against the same rows of one replica, column by column, without a Python loop over the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from blockhouse.config.endpoints import ClickHouse
from blockhouse.schema.expressions import TIME, TIME_MS, Expression
from blockhouse.schema.model import PROVENANCE_COLUMNS, DefaultKind, ServerColumn, TableHistory
from blockhouse.schema.types import Type, zero
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit.compare import Ints
from blockhouse_aggregator.audit.values.comparable import Mask, comparable, different
from blockhouse_aggregator.audit.values.defaults import (
    Constant,
    Default,
    JudgedColumn,
    Unknown,
    judged_column,
    stored_constant,
)
from blockhouse_aggregator.audit.values.reading import Cells, Reader
from blockhouse_aggregator.audit.values.report import TableValues, WrongValue
from blockhouse_aggregator.audit.values.stored import stored_as, values_of
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.names import identifier, qualified

MOST_ROWS = 20_000
"""Rows that are compared at a time, which bounds the memory."""
_ASKED = 2_000
"""Rows that one query names."""
_ROW_BITS = 20
"""No message has more rows than 2^20."""
_NOTED, _LONGEST = 5, 40
"""Wrong values of a column and portion that are shown, and characters of a value."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A column as it was sent: with its default where it is constant, also in the form in which it is compared."""

    cells: Cells
    default: Default
    values: list[Any]
    array: pa.Array


@dataclass(frozen=True, slots=True)
class Portion:
    """Some rows of one table in one stream, by offset and number in the message; `alone`: the message has no other row;
    `times_ms` is the message's time in Kafka. `rows` are what the reader gave for them."""

    stream: StreamId
    table: str
    offsets: Ints
    numbers: Ints
    alone: Mask
    times_ms: Ints
    rows: Sequence[Any]
    read: dict[tuple[str, Type], _Sent] = field(default_factory=dict)

    @property
    def keys(self) -> Ints:
        """Rising, one a row."""
        return self.offsets << _ROW_BITS | self.numbers

    def column(self, column: JudgedColumn, reader: Reader) -> _Sent:
        """One column, read once for all replicas that have it alike."""
        key = (column.name, column.type)
        if key not in self.read or self.read[key].default != column.default:
            cells = reader.column(column.name, column.type, self.rows)
            values = _with_defaults(cells, column)
            self.read[key] = _Sent(cells, column.default, values, comparable(values, column.type))
        return self.read[key]


def portions(stream: StreamId, table: str, messages: Sequence[tuple[int, int, Sequence[Any]]]) -> Iterator[Portion]:
    """Messages, each as its offset, its time and its rows, cut into portions of at most MOST_ROWS."""
    counts = np.array([len(rows) for _, _, rows in messages], np.int64)
    offsets = np.repeat(np.array([offset for offset, _, _ in messages], np.int64), counts)
    times = np.repeat(np.array([moment for _, moment, _ in messages], np.int64), counts)
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    numbers = np.arange(len(offsets)) - begins
    alone = np.repeat(counts, counts) == 1
    rows = [row for _, _, found in messages for row in found]
    for at in range(0, len(rows), MOST_ROWS):
        part = slice(at, at + MOST_ROWS)
        yield Portion(stream, table, offsets[part], numbers[part], alone[part], times[part], rows[part])


@dataclass(frozen=True, slots=True)
class _Plan:
    """A table as a replica has it: the columns that are judged, and whether it numbers the rows of a message."""

    columns: tuple[JudgedColumn, ...]
    numbered: bool


class ReplicaValues:
    """The values of one replica. Errors are ServerFault (unreachable) or Permanent."""

    def __init__(self, config: ClickHouse) -> None:
        self.name = f"{config.host}:{config.port}"
        self._replica = Replica(config, timeout=120)
        self._plans: dict[str, _Plan] = {}
        self._results: dict[str, TableValues] = {}

    def prepare(self, tables: Collection[str], histories: Mapping[str, TableHistory]) -> None:
        """Learn what the replica's tables are, before anything is judged."""
        columns: dict[str, list[ServerColumn]] = defaultdict(list)
        rows = self._replica.query(
            "SELECT concat(database, '.', table), name, type, default_kind, default_expression FROM system.columns"
        )
        for table, name, type_, kind, expression in rows:
            if table in tables:
                columns[table].append(
                    ServerColumn(name=name, type=type_, default_kind=DefaultKind(kind), default_expression=expression)
                )
        for table, found in columns.items():
            judged = []
            for column in found:
                if column.name in PROVENANCE_COLUMNS or column.default_kind in (
                    DefaultKind.ALIAS,
                    DefaultKind.EPHEMERAL,
                ):
                    continue  # it identifies the row, or nothing of it is stored
                known = judged_column(histories[table], column)
                if isinstance(known, Unknown):
                    self.result(table).columns[column.name] = known.reason
                else:
                    judged.append(known)
            numbered = "_kafka_row" in {column.name for column in found}
            self._plans[table] = _Plan(tuple(judged), numbered)

    def result(self, table: str) -> TableValues:
        """What was found of the table until now."""
        return self._results.setdefault(table, TableValues(table, self.name))

    def judge(self, portion: Portion, reader: Reader) -> None:
        """Compare every column of the rows that are stored; whether all of them are is the business of `compare`."""
        plan, result = self._plans.get(portion.table), self.result(portion.table)
        if plan is None:
            result.rest["rows: the table is not there"] += len(portion.rows)
            return
        if not plan.numbered and not portion.alone.all():
            result.rest["rows: the table has no _kafka_row to distinguish them"] += int((~portion.alone).sum())
        if not plan.columns:
            return
        selected = [stored_as(identifier(column.name), column.type) for column in plan.columns]
        keys, answers = self._ask(portion, plan, selected, _where(portion, plan.numbered))
        at, stored = _places(portion, keys, plan.numbered)
        result.rows += len(at)
        for column, answer in zip(plan.columns, answers, strict=True):
            if column.sent:
                self._sent(portion, plan, column, portion.column(column, reader), at, stored, answer)
            elif len(at):
                self._computed(portion, plan, column, np.ones(len(portion.rows), np.bool_))

    def close(self) -> None:
        """Drop the connection; raises nothing."""
        self._replica.close()

    def _sent(
        self, portion: Portion, plan: _Plan, column: JudgedColumn, sent: _Sent, at: Ints, stored: Ints, answer: Any
    ) -> None:
        """`at`: which row of the portion each stored value belongs to; `stored`: which of the answers it is."""
        result, default, cells = self.result(portion.table), column.default, sent.cells
        constant = isinstance(default, Constant)
        if not constant and (lacking := int(cells.absent[at].sum())):
            if isinstance(default, Unknown):
                result.rest[f"values of column {column.name} that were not sent: {default.reason}"] += lacking
            else:
                self._computed(portion, plan, column, cells.absent)
        found = values_of(answer, column.type)
        expected = sent.array.take(pa.array(at))
        wrong = different(expected, comparable(found, column.type).take(pa.array(stored))) | cells.unreadable[at]
        judged = np.ones(len(at), np.bool_) if constant else ~cells.absent[at]
        result.values += int(judged.sum())
        places = np.flatnonzero(wrong & judged)
        self._note(
            portion, column, at[places], [sent.values[row] for row in at[places[:_NOTED]]], stored[places], found
        )

    def _computed(self, portion: Portion, plan: _Plan, column: JudgedColumn, rows: Mask) -> None:
        """The values that an expression gives over the stored row, once more, against those that are stored."""
        expression = column.default
        assert isinstance(expression, Expression)
        asked = np.flatnonzero(rows)
        selected = [stored_as(identifier(column.name), column.type), expression.value]
        step = len(asked) if rows.all() else _ASKED
        for begin in range(0, len(asked), step):
            part = asked[begin : begin + step]
            where = _where(portion, plan.numbered) if rows.all() else _named(portion, part, plan.numbered)
            known = _times(portion, part) if expression.timed else ""
            keys, answers = self._ask(portion, plan, selected, where, known)
            at, stored = _places(portion, keys, plan.numbered)
            found, expected = (values_of(answer, column.type) for answer in answers)
            wrong = different(comparable(expected, column.type), comparable(found, column.type))[stored]
            self.result(portion.table).values += len(at)
            places = np.flatnonzero(wrong)
            sent = [expected[index] for index in stored[places[:_NOTED]]]
            self._note(portion, column, at[places], sent, stored[places], found)

    def _ask(
        self, portion: Portion, plan: _Plan, selected: Sequence[str], where: str, known: str = ""
    ) -> tuple[Ints, list[Sequence[Any]]]:
        """Keys of the stored rows, and the columns that are selected."""
        number = "toInt64(_kafka_row)" if plan.numbered else "toInt64(0)"
        sql = f"{known}SELECT toInt64(_kafka_offset), {number}, {', '.join(selected)}".replace("%", "%%")
        found = self._replica.columns(
            f"{sql} FROM {qualified(*portion.table.split('.', 1))}"
            f" WHERE _kafka_cluster = %(cluster)s AND _kafka_partition = %(partition)s AND {where}",
            {"cluster": portion.stream.cluster, "partition": portion.stream.partition},
        )
        if not found:
            return np.array([], np.int64), [[] for _ in selected]
        offsets, numbers = (np.array(column, np.int64) for column in found[:2])
        return offsets << _ROW_BITS | numbers, found[2:]

    def _note(
        self,
        of: Portion,
        column: JudgedColumn,
        rows: Ints,
        sent: Sequence[Any],
        stored: Ints,
        found: Sequence[Any],
    ) -> None:
        """Wrong values: their rows in the portion, what was sent (of the first ones), and which of `found` they are."""
        if not len(rows):
            return
        result = self.result(of.table)
        result.wrong[column.name] += len(rows)
        for row, value, index in zip(rows.tolist(), sent, stored.tolist(), strict=False):
            place = (of.stream, int(of.offsets[row]), int(of.numbers[row]))
            result.note(WrongValue(*place, column.name, _short(value), _short(found[index])))


def _with_defaults(cells: Cells, column: JudgedColumn) -> list[Any]:
    """The values with a constant where the message has none, and something of the type where nothing is known."""
    if not (cells.absent.any() or cells.unreadable.any()):
        return cells.values
    empty = stored_constant(zero(column.type), column.type)
    instead = column.default.value if isinstance(column.default, Constant) else empty
    gaps = zip(cells.values, cells.absent.tolist(), cells.unreadable.tolist(), strict=True)
    return [instead if absent else empty if unreadable else value for value, absent, unreadable in gaps]


def _places(portion: Portion, keys: Ints, numbered: bool) -> tuple[Ints, Ints]:
    """Which row of the portion is stored, and which answer it is: rows that are there twice are judged twice."""
    candidates = np.flatnonzero(portion.alone) if not numbered else np.arange(len(portion.rows))
    known = portion.keys[candidates]
    if not len(known):
        return np.array([], np.int64), np.array([], np.int64)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    stored = np.flatnonzero(known[place] == keys)
    return candidates[place[stored]], stored


def _where(portion: Portion, numbered: bool) -> str:
    offsets = np.unique(portion.offsets)
    low, high = int(offsets[0]), int(offsets[-1])
    text = f"_kafka_offset >= {low} AND _kafka_offset <= {high}"
    if numbered and low == high and not portion.alone[0]:
        first, last = int(portion.numbers[0]), int(portion.numbers[-1])
        return f"{text} AND _kafka_row >= {first} AND _kafka_row <= {last}"
    return text if high - low + 1 == len(offsets) else f"{text} AND _kafka_offset IN ({_listed(offsets)})"


def _named(portion: Portion, rows: Ints, numbered: bool) -> str:
    if not numbered:
        return f"_kafka_offset IN ({_listed(portion.offsets[rows])})"
    pairs = zip(portion.offsets[rows].tolist(), portion.numbers[rows].tolist(), strict=True)
    return f"(_kafka_offset, _kafka_row) IN ({', '.join(map(str, pairs))})"


def _times(portion: Portion, rows: Ints) -> str:
    """Names for the time of each row's message, as an expression over the message's time has them."""
    offsets, first = np.unique(portion.offsets[rows], return_index=True)
    times = portion.times_ms[rows][first]
    moment = f"transform(toUInt64(_kafka_offset), [{_listed(offsets)}], [{_listed(times)}], toUInt64(0))"
    return f"WITH toInt64({moment}) AS {TIME_MS}, toDateTime(intDiv({moment}, 1000)) AS {TIME} "


def _listed(numbers: Ints) -> str:
    return ", ".join(map(str, numbers.tolist()))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
