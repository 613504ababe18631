"""What a worker and its decoding process send to each other: length-prefixed pickles over the process's own pipes.

worker                                child
Prepare(key, form, table, revision) ->                                         once per decoder and process
Decode(key, payloads, timestamps)   ->         <- Ask(select, body) ...        a DEFAULT that only a server knows
Answer | NoAnswer | AskLater        ->         <- Decoded(batch) | AskLater

Never read from or written to anything but a pipe between a process and its own child: a pickle is trusted.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from blockhouse.schema.model import Revision, TableHistory
from blockhouse_aggregator.wire.batch import DecodedBatch
from blockhouse_aggregator.wire.formats import Format

_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Ready:
    """The child has imported all it needs: what kills it from now on is what it was given."""


@dataclass(frozen=True, slots=True)
class Prepare:
    key: int
    form: Format
    table: TableHistory
    revision: Revision


@dataclass(frozen=True, slots=True)
class Decode:
    key: int
    payloads: Sequence[bytes]
    timestamps_ms: Sequence[int]


@dataclass(frozen=True, slots=True)
class Decoded:
    batch: DecodedBatch


@dataclass(frozen=True, slots=True)
class Ask:
    """`wire.filling.Evaluate`, which only the worker can answer."""

    select: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    values: Sequence[Any]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A row's values have no answer (ValueError)."""

    text: str


@dataclass(frozen=True, slots=True)
class AskLater:
    """The server cannot be asked now (Retryable): the worker's answer to `Ask`, and then the child's to `Decode`."""

    text: str
    after: float


Frame = Ready | Prepare | Decode | Decoded | Ask | Answer | NoAnswer | AskLater


def write(pipe: BinaryIO, frame: Frame) -> None:
    """Raises OSError when the other end is gone."""
    data = pickle.dumps(frame, pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(_LENGTH, "big"))
    pipe.write(data)
    pipe.flush()


def read(pipe: BinaryIO) -> Frame:
    """Raises EOFError when the other end is gone, also in the middle of a frame."""
    size = int.from_bytes(_exactly(pipe, _LENGTH), "big")
    frame: Frame = pickle.loads(_exactly(pipe, size))
    return frame


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data
