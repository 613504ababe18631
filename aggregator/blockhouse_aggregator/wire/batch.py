"""What every format's decoder gives: the rows of the good messages, and which messages must not be stored.

A format is one module with one `Decoder`. Whatever was sent, the columns come out in the same types, so that there is
one encoder, and messages of several formats make one block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blockhouse_aggregator.wire.native import alike


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


class Decoder(Protocol):
    """Decodes messages of one format for one table at one revision."""

    def decode(self, payloads: Sequence[bytes], timestamps_ms: Sequence[int] = ()) -> DecodedBatch:
        """The verdict on a message and its rows never depend on its neighbours. Never raises for what a message holds.

        `timestamps_ms` are the messages' Kafka timestamps, needed where a DEFAULT is the time of arrival. Raises
        Retryable when a DEFAULT cannot be asked of the server now.
        """


def without(
    columns: dict[str, pa.Array], counts: npt.NDArray[np.int64], refused: Mapping[int, BadMessage]
) -> DecodedBatch:
    """The batch without the rows of the refused messages, by index."""
    if refused:
        out = np.isin(np.arange(len(counts)), list(refused))
        if counts[out].any():
            keep = pa.array(~np.repeat(out, counts))
            columns = {name: values.filter(keep) for name, values in columns.items()}
            counts = np.where(out, 0, counts)
    return DecodedBatch(columns, counts, tuple(refused[index] for index in sorted(refused)))


def interleave(parts: Sequence[tuple[npt.NDArray[np.intp], DecodedBatch]], messages: int) -> DecodedBatch:
    """One batch of several whose messages lie between each other: `parts` are (index of each message, its batch)."""
    if len(parts) == 1:
        return parts[0][1]
    order = np.empty(messages, np.intp)
    order[np.concatenate([indices for indices, _ in parts])] = np.arange(messages)
    counts = np.concatenate([batch.rows_per_message for _, batch in parts])
    begins = (np.cumsum(counts) - counts)[order]
    counts = counts[order]
    rows = pa.array(np.repeat(begins - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum())))
    columns = {
        name: pa.concat_arrays(alike([batch.columns[name] for _, batch in parts])).take(rows)
        for name in parts[0][1].columns
    }
    bad = [
        BadMessage(int(indices[found.index]), found.reason, found.detail)
        for indices, batch in parts
        for found in batch.bad
    ]
    return DecodedBatch(columns, counts, tuple(sorted(bad, key=lambda found: found.index)))
