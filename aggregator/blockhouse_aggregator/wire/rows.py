"""Format `rows`: a list of `RowBatch` messages to columns, and the messages that must not be stored.

A message is good or bad by itself, whatever its neighbours in the batch: blocks are rebuilt from other batches and must
come out the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blockhouse.schema.model import Revision, TableHistory
from blockhouse.schema.proto import field_names, row_batch_class
from blockhouse_aggregator.wire.batch import BadMessage, DecodedBatch
from blockhouse_aggregator.wire.fields import RowReader, Sent
from blockhouse_aggregator.wire.filling import Evaluate
from blockhouse_aggregator.wire.lengths import LengthCheck
from blockhouse_aggregator.wire.messages import MessageReader
from blockhouse_aggregator.wire.walk import RowWalk


class RowsDecoder:
    """Decodes what producers of any revision up to `revision` send.

    Messages whose header names a newer revision must not be given to it: their new fields would be unknown, hence bad.
    Raises Permanent naming table and column: UnsupportedType, UnsupportedDefault, or NoColumns.
    """

    def __init__(self, table: TableHistory, revision: Revision, evaluate: Evaluate | None = None) -> None:
        self._rows = RowReader(table, revision, evaluate)
        names = field_names(table, revision)
        self._names = {names[column.name]: column.name for column in revision.row}
        message = row_batch_class(table, revision, wide=True)
        lengths = LengthCheck(message)
        self._walk = RowWalk.of(message, {names[c.name] for c in revision.row if c.type == "String"})
        self._reader = MessageReader(message, lambda batch, sent: lengths.doubtful(batch.column("rows"), sent))

    def decode(self, payloads: Sequence[bytes], timestamps_ms: Sequence[int] = ()) -> DecodedBatch:
        """Never raises for what a message holds; a bad message has no rows and is named in `bad`."""
        walked = self._walk.read(payloads) if self._walk else None
        if walked is not None:
            fields, counts = walked
            bad: dict[int, BadMessage] = {}
        else:
            batch, bad = self._reader.read(payloads)
            rows = batch.column("rows")
            counts = np.diff(rows.offsets.to_numpy()).astype(np.int64)
            members = rows.flatten()
            fields = dict(zip((field.name for field in members.type), members.flatten(), strict=True))
        sent = {self._names[name]: Sent(values) for name, values in fields.items()}
        return self._rows.read(sent, counts, bad, timestamps_ms)
