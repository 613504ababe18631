"""Format `nucolumnar` (eBay's): an INSERT statement that names the columns, and rows of values that carry their kind.

A message needs no schema header: columns that its statement does not name take their defaults. A statement without a
column list means the columns of the newest revision with as many columns as the rows have values, none newer than the
block's. Must never guess: where two revisions of that size differ in order the message is bad.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blockhouse.schema.model import Revision, TableHistory
from blockhouse.schema.types import Array, Decimal, Fixed, Float, Integer, Map, Nullable, Text, Tuple, Type, plain
from blockhouse_aggregator.wire.batch import BadMessage, DecodedBatch, interleave
from blockhouse_aggregator.wire.columns import any_of, without_null_lists
from blockhouse_aggregator.wire.fields import RowReader, Sent
from blockhouse_aggregator.wire.filling import Evaluate
from blockhouse_aggregator.wire.insert_sql import columns_of
from blockhouse_aggregator.wire.loose import LooseValues, several_kinds
from blockhouse_aggregator.wire.messages import MessageReader
from blockhouse_aggregator.wire.nucolumnar_messages import request_class
from blockhouse_aggregator.wire.refused_values import refused

_REMEMBERED = 1024
_DIFFERENT, _NO_ROWS = -1, -2
"""What stands for the number of values of a row, where there is no such number."""


class _Refused(ValueError):
    """Why no message with this statement can be stored."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class NucolumnarDecoder:
    """Decodes `SQLBatchRequest` messages. Raises Permanent as `RowReader` does."""

    def __init__(self, table: TableHistory, revision: Revision, evaluate: Evaluate | None = None) -> None:
        self._rows = RowReader(table, revision, evaluate)
        self._types = {column.name: column.type for column in self._rows.columns}
        self._revisions = [known for known in table.revisions if known.number <= revision.number]
        depth = max(_depth(type_) for type_ in self._types.values())
        self._reader = MessageReader(request_class(depth), distrust=_several_kinds)
        self._statements: dict[bytes, tuple[str, ...] | _Refused | None] = {}

    def decode(self, payloads: Sequence[bytes], timestamps_ms: Sequence[int] = ()) -> DecodedBatch:
        """Never raises for what a message holds; a bad message has no rows and is named in `bad`."""
        batch, bad = self._reader.read(payloads)
        native = batch.column("clickHouseEncoding").is_valid().to_numpy(zero_copy_only=False)
        for index in np.flatnonzero(native).tolist():
            bad.setdefault(index, BadMessage(index, "UnsupportedFormat", "clickHouseEncoding is not supported"))
        encoding = batch.column("nucolumnarEncoding")
        statements, lists = encoding.flatten()
        lists = without_null_lists(lists)
        keys = statements.fill_null(b"").dictionary_encode()
        widths = _widths(lists)
        # Messages of one statement and one number of values are read together.
        groups = np.stack([keys.indices.to_numpy(), widths])
        distinct, group_of = np.unique(groups, axis=1, return_inverse=True)
        parts = []
        for number in range(distinct.shape[1]):
            members = np.flatnonzero(group_of.reshape(-1) == number)
            sql = keys.dictionary[int(distinct[0, number])].as_py()
            chosen = lists if len(members) == len(lists) else lists.take(pa.array(members))
            refused = {
                at: BadMessage(at, bad[index].reason, bad[index].detail)
                for at, index in enumerate(members.tolist())
                if index in bad
            }
            times = [timestamps_ms[index] for index in members.tolist()] if len(timestamps_ms) else ()
            parts.append((members, self._group(sql, int(distinct[1, number]), chosen, refused, times)))
        if not parts:
            return self._rows.read({}, np.zeros(0, np.int64), {}, ())
        return interleave(parts, len(payloads))

    def _group(
        self, sql: bytes, width: int, lists: pa.ListArray, bad: dict[int, BadMessage], times: Sequence[int]
    ) -> DecodedBatch:
        """Messages with one statement; every row has `width` values (see `_widths`)."""
        counts = np.diff(lists.offsets.to_numpy()).astype(np.int64)
        try:
            names = self._columns(sql, width)
        except _Refused as why:
            every = {n: bad.get(n, BadMessage(n, why.reason, why.detail)) for n in range(len(counts))}
            # A message without rows stores nothing, whatever its statement is.
            return self._rows.read({}, np.zeros(len(counts), np.int64), every, ())
        if not counts.any():
            return self._rows.read({}, counts, bad, times)
        values = LooseValues(lists.flatten().flatten()[0].flatten())
        unknown = next((at for at, name in enumerate(names) if name not in self._types), None)
        if unknown is not None:
            # All of these messages have rows: those without are of another group.
            begins = (np.cumsum(counts) - counts).tolist()
            texts = [refused(names[unknown], 0, _sent(values, unknown, width, row)) for row in begins]
            every = {n: bad.get(n, BadMessage(n, "UnknownColumn", text)) for n, text in enumerate(texts)}
            return self._rows.read({}, np.zeros(len(counts), np.int64), every, ())
        sent = {}
        absent = np.zeros(int(counts.sum()), np.bool_)
        for at, name in enumerate(names):
            read, flaws = values.column(at, width, self._types[name])
            sent[name] = Sent(read, absent, flaws, partial(_sent, values, at, width))
        return self._rows.read(sent, counts, bad, times)

    def _columns(self, sql: bytes, width: int) -> tuple[str, ...]:
        """The columns of a row of `width` values. Raises _Refused."""
        if width == _NO_ROWS and not sql:
            return ()  # an empty message
        found = self._statement(sql)
        if width == _NO_ROWS:
            return ()
        names = self._implicit(width) if found is None else found
        if len(names) != width:
            what = "differ in their number of values" if width == _DIFFERENT else f"have {width} values"
            raise _Refused("WrongValueCount", f"the statement names {len(names)} columns, its rows {what}")
        return names

    def _statement(self, sql: bytes) -> tuple[str, ...] | None:
        if sql not in self._statements:
            if len(self._statements) >= _REMEMBERED:
                self._statements.clear()
            try:
                self._statements[sql] = columns_of(sql)
            except ValueError as error:
                self._statements[sql] = _Refused("BadStatement", str(error))
        found = self._statements[sql]
        if isinstance(found, _Refused):
            raise found
        return found

    def _implicit(self, width: int) -> tuple[str, ...]:
        orders = {tuple(column.name for column in known.row) for known in self._revisions if len(known.row) == width}
        if len(orders) > 1:
            raise _Refused("AmbiguousColumns", f"revisions with {width} columns differ in order: name the columns")
        if not orders:
            raise _Refused("WrongValueCount", f"no revision has {width} columns: name the columns")
        return orders.pop()


def _sent(values: LooseValues, at: int, width: int, row: int) -> object:
    """The value at a place of a row, all of which have `width` values."""
    return values.sent(row * width + at)


def _depth(type_: Type) -> int:
    match plain(type_):
        case Array(inner=inner):
            return 1 + _depth(inner)
        case Integer() | Float() | Text() | Fixed() | Decimal() | Nullable() | Map() | Tuple():
            return 0
        case unreachable:
            assert_never(unreachable)


def _widths(lists: pa.ListArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How many values the rows of each message have, _NO_ROWS or _DIFFERENT."""
    rows = pc.list_value_length(lists.flatten().flatten()[0]).to_numpy().astype(np.int64)
    offsets = lists.offsets.to_numpy() - lists.offsets[0].as_py() if len(lists) else np.zeros(1, np.int32)
    found = np.full(len(lists), _NO_ROWS, np.int64)
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        found[filled] = rows[offsets[filled]]
        differing = rows != np.repeat(found, np.diff(offsets))
        found[any_of(differing, offsets)] = _DIFFERENT
    return found


def _several_kinds(batch: pa.RecordBatch, _payloads: pa.BinaryArray) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    lists = batch.column("nucolumnarEncoding").flatten()[1]
    lists = without_null_lists(lists)
    rows = lists.flatten().flatten()[0]
    marked = any_of(several_kinds(rows.flatten()), rows.offsets.to_numpy())
    return np.flatnonzero(any_of(marked, lists.offsets.to_numpy()))
