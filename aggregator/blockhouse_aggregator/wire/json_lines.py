"""Format `json`: one object a line, keys are the columns' names.

The fast path (`json_arrow`) takes what it reads beyond doubt; every other message is read by `json_values`, one by one,
by the same rules: quoted numbers, numbers for dates, Map and Tuple columns, a null where absence means something else.
Which of the two reads a message must never show in what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blockhouse.schema.kinds import holds_null
from blockhouse.schema.model import Revision, TableHistory
from blockhouse_aggregator.wire.batch import BadMessage, DecodedBatch, interleave
from blockhouse_aggregator.wire.columns import field_type
from blockhouse_aggregator.wire.fields import RowReader, Sent
from blockhouse_aggregator.wire.filling import Evaluate
from blockhouse_aggregator.wire.json_arrow import FastReader, is_plain
from blockhouse_aggregator.wire.json_values import ColumnValue, Undecodable, rows_of
from blockhouse_aggregator.wire.refused_values import refused

_MANY = 100
"""Messages that stand for those to come."""


class JsonDecoder:
    """Decodes JSON lines. Raises Permanent as `RowReader` does."""

    def __init__(self, table: TableHistory, revision: Revision, evaluate: Evaluate | None = None) -> None:
        self._rows = RowReader(table, revision, evaluate)
        self._types = {column.name: column.type for column in self._rows.columns}
        # Columns in which an explicit null means something else than an absent value.
        self._null_matters = [
            c.name for c in self._rows.columns if c.asked or c.default is not None or not holds_null(c.type)
        ]
        self._fast = all(is_plain(type_) for type_ in self._types.values())

    def decode(self, payloads: Sequence[bytes], timestamps_ms: Sequence[int] = ()) -> DecodedBatch:
        """Never raises for what a message holds; a bad message has no rows and is named in `bad`."""
        slow = np.ones(len(payloads), np.bool_)
        parts = []
        if self._fast and payloads:
            found = FastReader(self._types, self._null_matters, payloads[0]).read(pa.array(payloads, pa.binary()))
            slow[found.members] = False
            self._fast = len(payloads) < _MANY or len(found.members) * 2 > len(payloads)
            if len(found.members):
                sent = {name: Sent(values) for name, values in found.columns.items()}
                read = self._rows.read(sent, found.counts, {}, _chosen(timestamps_ms, found.members))
                parts.append((found.members, read))
        unusual = np.flatnonzero(slow)
        if len(unusual) or not parts:
            values = [payloads[index] for index in unusual.tolist()]
            parts.append((unusual, self._one_by_one(values, _chosen(timestamps_ms, unusual))))
        return interleave(parts, len(payloads))

    def _one_by_one(self, payloads: Sequence[bytes], timestamps_ms: Sequence[int]) -> DecodedBatch:
        rows: list[dict[str, Any]] = []
        counts = np.zeros(len(payloads), np.int64)
        bad: dict[int, BadMessage] = {}
        for index, payload in enumerate(payloads):
            try:
                found = rows_of(payload, self._types)
            except Undecodable as error:
                bad[index] = BadMessage(index, "Undecodable", str(error))
            except ColumnValue as error:
                bad[index] = BadMessage(index, error.reason, self._refused(error))
            else:
                counts[index] = len(found)
                rows += found
        sent = {}
        for name, type_ in self._types.items():
            absent = np.fromiter((name not in row for row in rows), np.bool_, len(rows))
            sent[name] = Sent(pa.array([row.get(name) for row in rows], field_type(type_)), absent)
        return self._rows.read(sent, counts, bad, timestamps_ms)

    def _refused(self, error: ColumnValue) -> str:
        declared = next((column.declared for column in self._rows.columns if column.name == error.column), "")
        return refused(error.column, error.row, error.value, declared)


def _chosen(timestamps_ms: Sequence[int], members: npt.NDArray[np.intp]) -> Sequence[int]:
    return [timestamps_ms[index] for index in members.tolist()] if len(timestamps_ms) else ()
