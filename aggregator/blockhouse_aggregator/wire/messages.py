"""Protobuf messages of a given class to Arrow, and those among them that cannot be trusted.

The fast path decodes with ptars; a message whose length is explained by its values has lost nothing (`lengths.py`).
The doubtful ones are encoded back: one that comes out byte for byte has lost nothing either. All others are judged one
by one with the official protobuf runtime. Must never let a field disappear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from blockhouse_aggregator.wire.arrow import joined
from blockhouse_aggregator.wire.batch import BadMessage
from blockhouse_aggregator.wire.columns import Mask
from blockhouse_aggregator.wire.refused_values import unnamed

_MANY = 100
"""Messages that stand for those to come."""
_NOT_ASKED = 16
"""Batches after such messages that are encoded back at once."""

Doubt = Callable[[pa.RecordBatch, pa.BinaryArray], npt.NDArray[np.intp]]
"""Indices of the messages that may hold more than was read from them; None of them needs to."""


class MessageReader:
    """`prove` finds which messages are doubtful without encoding them back; without it all are encoded back.
    `distrust` names messages that need the official runtime although they come out byte for byte."""

    def __init__(self, message: type[Message], prove: Doubt | None = None, distrust: Doubt | None = None) -> None:
        self._message = message
        self._prove = prove
        self._rest = 0
        self._distrust = distrust
        descriptor = message.DESCRIPTOR
        self._handler = ptars.HandlerPool([descriptor.file]).get_for_message(descriptor)

    def read(self, payloads: Sequence[bytes]) -> tuple[pa.RecordBatch, dict[int, BadMessage]]:
        """The decoded messages (a bad one as an empty message), and the bad ones."""
        accepted = list(payloads)
        bad: dict[int, BadMessage] = {}
        batch, suspects = self._survey(joined(accepted))
        for index in suspects:
            verdict = self._judge(accepted[index])
            accepted[index] = verdict if isinstance(verdict, bytes) else b""
            if isinstance(verdict, str):
                reason, _, detail = verdict.partition(": ")
                bad[index] = BadMessage(index, reason, detail)
        if suspects:
            batch, suspects = self._survey(joined(accepted))
        for index in suspects:
            accepted[index] = b""
            bad[index] = BadMessage(index, "Undecodable", "the decoder and the official protobuf runtime disagree")
        if suspects:
            batch, suspects = self._survey(joined(accepted))
        if batch is None or suspects:
            raise RuntimeError(f"messages {suspects} cannot be decoded although they were accepted")
        return batch, bad

    def _survey(self, payloads: pa.BinaryArray, start: int = 0) -> tuple[pa.RecordBatch | None, list[int]]:
        """All decoded (None if one makes ptars fail), and the indices of those that failed or came out changed."""
        batch = attempt(self._handler, payloads)
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
        if self._prove is not None and not self._rest:
            doubtful = self._prove(batch, payloads)
            if len(doubtful) <= len(payloads) // 2:
                chosen = doubtful
            elif len(payloads) >= _MANY:
                # Lists of one number all over: asking again at once would not be worth its price.
                self._rest = _NOT_ASKED
        else:
            self._rest = max(0, self._rest - 1)
        if not len(chosen):
            return chosen
        if len(chosen) < len(payloads):
            batch, payloads = batch.take(pa.array(chosen)), payloads.take(pa.array(chosen))
        again = self._handler.record_batch_to_array(batch)
        changed: Mask = pc.not_equal(again, payloads).to_numpy(zero_copy_only=False)
        if self._distrust is not None:
            changed[self._distrust(batch, payloads)] = True
        return chosen[changed]

    def _judge(self, payload: bytes) -> bytes | str:
        """What the official runtime makes of one message: its canonical bytes, or `Reason: detail`."""
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


def attempt(handler: Any, payloads: pa.BinaryArray) -> pa.RecordBatch | None:
    """All decoded by this handler of ptars; None if one of them makes it fail."""
    try:
        return handler.array_to_record_batch(payloads)
    except ValueError:
        return None
    except BaseException as error:
        # A panic in Rust is no Exception; anything else (an interrupt, no memory) proves nothing about the messages.
        if type(error).__name__ != "PanicException":
            raise
        return None


def _unknown_fields(message: Message, row: str = "") -> Iterator[str]:
    """Fields that the revision does not have, or that were sent with another wire type; `row` is where."""
    unknown = UnknownFieldSet(message)
    for index in range(len(unknown)):
        field = unknown[index]
        yield f"field {field.field_number} of {message.DESCRIPTOR.name}{row}: {unnamed(field.data)}"
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for number, child in enumerate(value if descriptor.is_repeated else (value,), 1):
                yield from _unknown_fields(child, f", row {number}" if descriptor.name == "rows" else row)
