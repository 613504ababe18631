"""The columns that name the message a row came from: without them two genuine blocks of equal rows look like one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from blockhouse.errors import Permanent
from blockhouse.schema.model import PROVENANCE_COLUMNS, Revision
from blockhouse.schema.parse import parse_type
from blockhouse.schema.types import Integer, Text, plain
from blockhouse.streams import StreamId, incarnation
from blockhouse_aggregator.wire.native import ColumnData, ConstantColumn

_CLUSTER, _PARTITION, _OFFSET, _ROW, _TOPIC = PROVENANCE_COLUMNS
_TEXTS = (_CLUSTER, _TOPIC)
# What must fit, whatever is sent: a type that could overflow one day is refused on the first.
_LARGEST = {_PARTITION: (1 << 31) - 1, _OFFSET: (1 << 63) - 1, _ROW: (1 << 20) - 1}


class Provenance:
    """Fills those provenance columns that the table has. In a foreign block, whose writer knew nothing of them, they
    hold what the server put there: their types' zeros. (For the server a default is the same as its value.)

    `topic_id` is that of the metadata that names the block. Raises Permanent(reason="UnsupportedType") if one of them
    cannot hold every value it may get.
    """

    def __init__(
        self, table: str, revision: Revision, stream: StreamId, topic_id: str = "", *, foreign: bool = False
    ) -> None:
        self._stream = stream
        self._topic = incarnation(stream.topic, topic_id).encode()
        self._foreign = foreign
        self._names = tuple(column.name for column in revision.insertable if column.name in PROVENANCE_COLUMNS)
        for column in revision.insertable:
            if column.name not in PROVENANCE_COLUMNS:
                continue
            if column.name == _TOPIC and column.default_expression:
                raise Permanent(
                    f"table {table}: provenance column {_TOPIC} has a DEFAULT: rows of unknown topics would name one;"
                    " remove the DEFAULT",
                    reason="UnsupportedDefault",
                )
            if foreign and column.default_expression:
                raise Permanent(
                    f"table {table}: provenance column {column.name} has a DEFAULT: a block of another aggregator"
                    " cannot be rebuilt; remove the DEFAULT",
                    reason="UnsupportedDefault",
                )
            type_ = plain(parse_type(column.type))
            if column.name in _TEXTS:
                fits = isinstance(type_, Text)
            else:
                fits = isinstance(type_, Integer) and type_.low <= 0 and type_.high >= _LARGEST[column.name]
            if not fits:
                raise Permanent(
                    f"table {table}: provenance column {column.name} cannot be {column.type}; use String or "
                    f"LowCardinality(String) for {_CLUSTER} and {_TOPIC}, UInt64 for {_OFFSET}, UInt32 for the others",
                    reason="UnsupportedType",
                )

    def columns(self, offsets: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> dict[str, ColumnData]:
        """For messages at `offsets` with `counts` rows each."""
        rows = int(counts.sum())
        made: dict[str, ColumnData] = {}
        for name in self._names:
            if self._foreign:
                made[name] = ConstantColumn(b"" if name in _TEXTS else 0, rows)
            elif name == _CLUSTER:
                made[name] = ConstantColumn(self._stream.cluster.encode(), rows)
            elif name == _TOPIC:
                made[name] = ConstantColumn(self._topic, rows)
            elif name == _PARTITION:
                made[name] = ConstantColumn(self._stream.partition, rows)
            elif name == _OFFSET:
                # As UInt64 stores it: offsets are not negative, and nothing has to be converted.
                made[name] = np.repeat(offsets.view(np.uint64), counts)
            else:
                made[name] = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
        return made
