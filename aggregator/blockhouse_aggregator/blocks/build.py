"""The messages of one table of one stream, in offset order, to the one block that is inserted.

A block is a pure function of (stream, table, its messages, schema revision): how the messages were handed over, when,
and by which replica must never show in its bytes. No I/O, no clock.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blockhouse.config.pipeline import MAX_BLOCK_BYTES, MAX_ROWS
from blockhouse.schema.model import Revision, TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.oversized import without_oversized
from blockhouse_aggregator.blocks.provenance import Provenance
from blockhouse_aggregator.wire.batch import BadMessage, DecodedBatch, Decoder, interleave
from blockhouse_aggregator.wire.fields import most_rows
from blockhouse_aggregator.wire.filling import Evaluate
from blockhouse_aggregator.wire.formats import Format, MakeDecoder, decoder
from blockhouse_aggregator.wire.native import ColumnData, ConstantColumn, alike, encode_block


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """A block ready to be inserted. `begin` and `end` are the offsets of its first and last good message.

    `header` is (column, ClickHouse type) in the order of the body; the INSERT names exactly these columns. `body` is
    one Native block, `crc` its CRC-32. Messages may hold no rows: they count in `messages`, and a block of nothing else
    has `rows` 0 and an empty body. It is recorded and acknowledged like any other; only its INSERT is left out.
    """

    table: str
    begin: int
    end: int
    messages: int
    rows: int
    crc: int
    revision: int
    header: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    min_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A message for the dead-letter topic. `reason` is CamelCase and one of few, `detail` is for people."""

    offset: int
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Sealed:
    """`cut_at` is the offset of the first good message that did not fit; it and all after it are for the next block.

    `dead` names the dead messages below `cut_at` (all of them if nothing was cut). Without a good message there is no
    block.
    """

    block: EncodedBlock | None
    dead: tuple[DeadMessage, ...]
    cut_at: int | None


class BlockBuilder:
    """Collects messages of any format, decodes them in portions, seals them into a block.

    `topic_id` is of the topic its messages are of. A `foreign` block is one of another aggregator, without provenance.
    `make` gives the decoders. `most_rows` is how many rows a block may have before the server would cut it in two.
    Raises Permanent (UnsupportedType, UnsupportedDefault, NoColumns) when the table cannot be loaded at this revision.
    """

    def __init__(
        self,
        table: TableHistory,
        revision: Revision,
        stream: StreamId,
        evaluate: Evaluate | None = None,
        *,
        topic_id: str = "",
        foreign: bool = False,
        make: MakeDecoder = decoder,
    ) -> None:
        self._table = table.name
        self._schema = (table, revision, evaluate)
        self._revision = revision.number
        self.most_rows = most_rows(revision)
        self._header = tuple((column.name, column.type) for column in revision.insertable)
        self._make = make
        self._decoders: dict[Format, Decoder] = {Format.ROWS: make(Format.ROWS, *self._schema)}
        self._provenance = Provenance(table.name, revision, stream, topic_id, foreign=foreign)
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._waiting: list[bytes] = []
        self._forms: list[Format] = []
        self._decoded: list[DecodedBatch] = []
        self._bad: dict[int, BadMessage] = {}
        self._rows = 0
        self.payload_bytes = 0
        self.decoded_bytes = 0

    @property
    def messages(self) -> int:
        """Messages appended so far, bad ones included."""
        return len(self._offsets)

    @property
    def dead(self) -> tuple[DeadMessage, ...]:
        """The bad ones among the messages decoded so far."""
        return self._dead_below(len(self._offsets))

    def append(self, offset: int, value: bytes, timestamp_ms: int, form: Format = Format.ROWS) -> None:
        """Takes the next message. Offsets must rise."""
        self.extend((offset,), (value,), (timestamp_ms,), form)

    def extend(
        self,
        offsets: Sequence[int],
        values: Sequence[bytes],
        timestamps_ms: Sequence[int],
        form: Format = Format.ROWS,
    ) -> None:
        """Takes the next messages, all of one format. Offsets must rise."""
        self._offsets += offsets
        self._timestamps += timestamps_ms
        self._waiting += values
        self._forms += [form] * len(values)
        self.payload_bytes += sum(map(len, values))

    def decode(self) -> int:
        """Decodes what came since the last call and lets go of its payloads. Returns the good rows so far.

        `decoded_bytes` is what these rows take in memory, about as much as in the block: a row of many columns of
        which its message names few takes a hundred times the message.
        """
        if self._waiting:
            first = len(self._offsets) - len(self._waiting)
            decoded = self._decode_waiting(self._timestamps[first:])
            batch = without_oversized(
                decoded, lambda index, columns: self._encoded(self._offsets[first + index], columns)
            )
            self._waiting, self._forms = [], []
            self._decoded.append(batch)
            self._bad |= {first + message.index: message for message in batch.bad}
            self._rows += int(batch.rows_per_message.sum())
            self.decoded_bytes += sum(column.nbytes for column in batch.columns.values())
        return self._rows

    def _encoded(self, offset: int, columns: Mapping[str, pa.Array]) -> int:
        """Bytes of the block that has nothing but the rows of the message at the offset."""
        counts = np.array([len(column) for column in columns.values()][:1])
        provenance = self._provenance.columns(np.array([offset], np.int64), counts)
        return len(encode_block(self._header, {**columns, **provenance}))

    def _decode_waiting(self, timestamps_ms: list[int]) -> DecodedBatch:
        forms = sorted(set(self._forms))
        parts = []
        for form in forms:
            if form not in self._decoders:
                self._decoders[form] = self._make(form, *self._schema)
            if len(forms) == 1:
                return self._decoders[form].decode(self._waiting, timestamps_ms)
            chosen = [index for index, found in enumerate(self._forms) if found is form]
            values, times = [self._waiting[i] for i in chosen], [timestamps_ms[i] for i in chosen]
            parts.append((np.array(chosen, np.intp), self._decoders[form].decode(values, times)))
        return interleave(parts, len(self._waiting))

    def seal(self, max_rows: int) -> Sealed:
        """The block of the first good messages whose rows do not exceed `max_rows`, nor the bytes of a block. Changes
        nothing: may be repeated.

        A message that exceeds `max_rows` alone gets a block alone: whether a message is good must not depend on a
        setting, or a replay under another setting would build another block. Only one above MAX_ROWS, which no block
        may exceed, is dead (TooManyRows). A replay seals with MAX_ROWS: its range was cut before.
        """
        self.decode()
        if not self._offsets:
            return Sealed(None, (), None)
        counts = np.concatenate([part.rows_per_message for part in self._decoded])
        good = np.ones(len(counts), bool)
        good[list(self._bad)] = False
        stored = np.flatnonzero(good)
        totals = np.cumsum(counts[stored])
        fitting = max(1, int(np.searchsorted(totals, min(max_rows, MAX_ROWS), side="right")))
        block = self._block(stored[:fitting], counts) if len(stored) else None
        while block is not None and len(block.body) >= MAX_BLOCK_BYTES:  # never of a single message
            fitting = min(fitting, len(stored)) // 2
            block = self._block(stored[:fitting], counts)
        cut = int(stored[fitting]) if fitting < len(stored) else None
        return Sealed(
            block=block,
            dead=self._dead_below(len(counts) if cut is None else cut),
            cut_at=None if cut is None else self._offsets[cut],
        )

    def rows_by_offset(self) -> dict[int, int]:
        """How many rows each good message has: what provenance is compared with."""
        offsets, counts = self._good()
        return dict(zip(offsets.tolist(), counts.tolist(), strict=True))

    def part(self, rows: Collection[tuple[int, int]]) -> tuple[bytes, int]:
        """Native bytes of only these rows, pairs of (offset, index in the message), in block order, and their number.

        For completing a block of which provenance found some rows: never a block by itself.
        """
        offsets, counts = self._good()
        numbers = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        kept = np.array([offset * (MAX_ROWS + 1) + row for offset, row in rows], np.int64)
        mask = np.isin(np.repeat(offsets, counts) * (MAX_ROWS + 1) + numbers, kept)
        left = int(mask.sum())
        columns: dict[str, ColumnData] = {
            name: column.filter(pa.array(mask)) for name, column in self._columns().items()
        }
        for name, data in self._provenance.columns(offsets, counts).items():
            if isinstance(data, ConstantColumn):
                columns[name] = ConstantColumn(data.value, left)
            else:
                columns[name] = np.asarray(data)[mask]
        return encode_block(self._header, columns), left

    def _good(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Offsets and row counts of the good messages."""
        self.decode()
        good = np.ones(len(self._offsets), bool)
        good[list(self._bad)] = False
        counts = np.concatenate([part.rows_per_message for part in self._decoded])
        return np.array(self._offsets, np.int64)[good], counts[good]

    def _columns(self) -> dict[str, pa.ChunkedArray]:
        return {
            name: pa.chunked_array(alike([part.columns[name] for part in self._decoded]))
            for name in self._decoded[0].columns
        }

    def _dead_below(self, end: int) -> tuple[DeadMessage, ...]:
        return tuple(
            DeadMessage(self._offsets[index], message.reason, message.detail)
            for index, message in self._bad.items()
            if index < end
        )

    def _block(self, messages: npt.NDArray[np.intp], counts: npt.NDArray[np.int64]) -> EncodedBlock:
        """The block of these good messages: a prefix of all good ones, so its rows are a prefix of all rows."""
        rows = int(counts[messages].sum())
        offsets = np.array(self._offsets, np.int64)[messages]
        times = np.array(self._timestamps, np.int64)[messages]
        body = self._body(offsets, counts[messages], rows) if rows else b""
        return EncodedBlock(
            table=self._table,
            begin=int(offsets[0]),
            end=int(offsets[-1]),
            messages=len(messages),
            rows=rows,
            crc=zlib.crc32(body),
            revision=self._revision,
            header=self._header,
            body=body,
            min_timestamp_ms=int(times.min()),
        )

    def _body(self, offsets: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], rows: int) -> bytes:
        columns: dict[str, ColumnData] = {name: column.slice(0, rows) for name, column in self._columns().items()}
        return encode_block(self._header, columns | self._provenance.columns(offsets, counts))
