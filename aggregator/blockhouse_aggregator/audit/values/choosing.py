"""Which messages are compared: all, or some of each table in runs from places by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from blockhouse_aggregator.audit.compare import Ints

RUN = 50
"""Messages of one table beside each other, at least: a place in a log costs a request, what follows it does not."""
PLACES = 100
"""Places of one table, at most: runs of a large sample are longer."""


def choose(streams: Sequence[Ints], size: int | None, random: np.random.Generator) -> list[Ints]:
    """Of each stream's offsets, which belong to one table, those that are compared: about `size` in all, or all."""
    total = sum(map(len, streams))
    if size is None or total <= size:
        return list(streams)
    run = max(RUN, -(-size // PLACES))
    slots = -(-total // run)
    chosen = random.choice(slots, min(slots, -(-size // run)), replace=False)
    mask = np.zeros(total, np.bool_)
    for slot in chosen.tolist():
        mask[slot * run : (slot + 1) * run] = True
    ends = np.cumsum([len(offsets) for offsets in streams])
    parts = np.split(mask, ends[:-1]) if len(streams) else []
    return [offsets[part] for offsets, part in zip(streams, parts, strict=True)]


def merged(chosen: Mapping[str, Ints]) -> Ints:
    """The offsets of all tables of a stream, in the order of the log."""
    return np.unique(np.concatenate([np.array([], np.int64), *chosen.values()]))
