"""Format `rows`: a list of `RowBatch` messages to columns, and the messages that must not be stored.

A message is good or bad by itself, whatever its neighbours in the batch: blocks are rebuilt from other batches and must
come out the same. The fast path decodes with ptars; a message whose length is explained by its values has lost nothing
(`lengths.py`). The doubtful ones are encoded back: one that comes out byte for byte has lost nothing either. All others
are judged one by one with the official protobuf runtime.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.errors import Permanent
from blockhouse.schema.defaults import constant_default
from blockhouse.schema.model import Revision, TableHistory
from blockhouse.schema.parse import parse_type
from blockhouse.schema.proto import field_names, row_batch_class
from blockhouse.schema.types import Array, Type
from blockhouse_aggregator.wire.columns import Column, Fill, Mask, read_column
from blockhouse_aggregator.wire.lengths import LengthCheck

_MANY = 100
"""Messages that say something about those to come."""


@dataclass(frozen=True, slots=True)
class BadMessage:
    """A message that must not be stored. `index` counts in the list given to `decode`; `reason` is CamelCase."""

    index: int
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The rows of the good messages, in order. `rows_per_message` has an entry for every message, 0 for a bad one."""

    columns: dict[str, pa.Array]
    rows_per_message: npt.NDArray[np.int64]
    bad: tuple[BadMessage, ...]


@dataclass(frozen=True, slots=True)
class _Field:
    column: str
    name: str
    type: Type
    default: Fill


class RowsDecoder:
    """Decodes what producers of any revision up to `revision` send.

    Messages whose header names a newer revision must not be given to it: their new fields would be unknown, hence bad.
    Raises Permanent naming table and column: UnsupportedType, UnsupportedDefault (no constant), or NoColumns.
    """

    def __init__(self, table: TableHistory, revision: Revision) -> None:
        if not revision.row:
            raise Permanent(f"table {table.name} has no column a producer could fill", reason="NoColumns")
        names = field_names(table, revision)
        self._fields = tuple(
            _Field(c.name, names[c.name], parse_type(c.type), constant_default(table.name, c)) for c in revision.row
        )
        self._nested = _nested_groups(self._fields)
        self._message = row_batch_class(table, revision, wide=True)
        descriptor = self._message.DESCRIPTOR
        self._lengths = LengthCheck(self._message)
        self._lengths_prove = True
        self._handler = ptars.HandlerPool([descriptor.file]).get_for_message(descriptor)

    def decode(self, payloads: Sequence[bytes]) -> DecodedBatch:
        """Never raises for what a message holds; a bad message has no rows and is named in `bad`."""
        batch, bad = self._parse(payloads)
        rows = batch.column("rows")
        counts = np.diff(rows.offsets.to_numpy()).astype(np.int64)
        columns, bad_rows = self._columns(rows.flatten())
        for index in np.flatnonzero(counts > MAX_ROWS).tolist():
            bad[index] = BadMessage(index, "TooManyRows", f"{counts[index]} rows, a block holds {MAX_ROWS}")
        if bad_rows or (counts > MAX_ROWS).any():
            message_of = np.repeat(np.arange(len(counts)), counts)
            for field, column in bad_rows:
                for index in np.unique(message_of[column.bad]).tolist():
                    bad.setdefault(index, BadMessage(index, column.reason, f"column {field.column}"))
            refused = np.isin(np.arange(len(counts)), list(bad))
            keep = pa.array(~refused[message_of])
            columns = {name: values.filter(keep) for name, values in columns.items()}
            counts[refused] = 0
        return DecodedBatch(columns, counts, tuple(bad[index] for index in sorted(bad)))

    def _columns(self, rows: pa.StructArray) -> tuple[dict[str, pa.Array], list[tuple[_Field, Column]]]:
        """Every column of the rows, and those in which a row is bad."""
        sent = dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
        read = [(field, read_column(sent[field.name], field.type, field.default)) for field in self._fields]
        columns = {field.column: column.values for field, column in read}
        bad = [(field, column) for field, column in read if column.bad is not None]
        for first, *others in self._nested:
            lengths = pc.list_value_length(columns[first.column])
            for field in others:
                unequal = pc.not_equal(lengths, pc.list_value_length(columns[field.column]))
                if pc.any(unequal).as_py():
                    mask: Mask = unequal.to_numpy(zero_copy_only=False)
                    bad.append((field, Column(columns[field.column], mask, "UnequalNested")))
        return columns, bad

    def _parse(self, payloads: Sequence[bytes]) -> tuple[pa.RecordBatch, dict[int, BadMessage]]:
        """The decoded messages (a bad one as a message without rows), and the bad ones."""
        accepted = list(payloads)
        bad: dict[int, BadMessage] = {}
        batch, suspects = self._survey(pa.array(accepted, pa.binary()))
        for index in suspects:
            verdict = self._judge(accepted[index])
            accepted[index] = verdict if isinstance(verdict, bytes) else b""
            if isinstance(verdict, str):
                reason, _, detail = verdict.partition(": ")
                bad[index] = BadMessage(index, reason, detail)
        if suspects:
            batch, suspects = self._survey(pa.array(accepted, pa.binary()))
        for index in suspects:
            accepted[index] = b""
            bad[index] = BadMessage(index, "Undecodable", "the decoder and the official protobuf runtime disagree")
        if suspects:
            batch, suspects = self._survey(pa.array(accepted, pa.binary()))
        if batch is None or suspects:
            raise RuntimeError(f"messages {suspects} cannot be decoded although they were accepted")
        return batch, bad

    def _survey(self, payloads: pa.BinaryArray, start: int = 0) -> tuple[pa.RecordBatch | None, list[int]]:
        """All decoded (None if one makes ptars fail), and the indices of those that failed or came out changed."""
        batch = self._try(payloads)
        if batch is not None:
            return batch, (start + self._changed(batch, payloads)).tolist()
        if len(payloads) == 1:
            return None, [start]
        half = len(payloads) // 2
        _, left = self._survey(payloads[:half], start)
        _, right = self._survey(payloads[half:], start + half)
        return None, left + right

    def _changed(self, batch: pa.RecordBatch, payloads: pa.BinaryArray) -> npt.NDArray[np.intp]:
        """The messages whose length proves nothing and that do not come out byte for byte when encoded back."""
        chosen = np.arange(len(payloads))
        if self._lengths_prove:
            doubtful = self._lengths.doubtful(batch.column("rows"), payloads)
            if len(doubtful) <= len(payloads) // 2:
                chosen = doubtful
            elif len(payloads) >= _MANY:
                # Lists of one number all over: asking again in this block would not be worth its price.
                self._lengths_prove = False
        if not len(chosen):
            return chosen
        if len(chosen) < len(payloads):
            batch, payloads = batch.take(pa.array(chosen)), payloads.take(pa.array(chosen))
        again = self._handler.record_batch_to_array(batch)
        changed: Mask = pc.not_equal(again, payloads).to_numpy(zero_copy_only=False)
        return chosen[changed]

    def _try(self, payloads: pa.BinaryArray) -> pa.RecordBatch | None:
        try:
            return self._handler.array_to_record_batch(payloads)
        except ValueError:
            return None
        except BaseException as error:
            # A panic in Rust is no Exception; anything else (an interrupt, no memory) says nothing about the messages.
            if type(error).__name__ != "PanicException":
                raise
            return None

    def _judge(self, payload: bytes) -> bytes | str:
        """What the official runtime says of one message: its canonical bytes, or `Reason: detail`."""
        try:
            message = self._message.FromString(payload)
        except DecodeError as error:
            return f"Undecodable: {error}"
        size = message.ByteSize()
        unknown = next(_unknown_fields(message), None)
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            return f"UnknownField: {unknown}"
        return message.SerializeToString(deterministic=True)


def _unknown_fields(message: Message) -> Iterator[str]:
    """Fields that the revision does not have, or that were sent with another wire type."""
    unknown = UnknownFieldSet(message)
    for index in range(len(unknown)):
        yield f"field {unknown[index].field_number} of {message.DESCRIPTOR.name}"
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for child in value if descriptor.is_repeated else (value,):
                yield from _unknown_fields(child)


def _nested_groups(fields: Sequence[_Field]) -> tuple[tuple[_Field, ...], ...]:
    """The columns of every flattened Nested (`n.a`, `n.b`): the server refuses a block in which lengths differ."""
    groups: dict[str, list[_Field]] = {}
    for field in fields:
        prefix, dot, _ = field.column.partition(".")
        if dot and isinstance(field.type, Array):
            groups.setdefault(prefix, []).append(field)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)
