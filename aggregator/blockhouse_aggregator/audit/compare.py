"""What was produced against what is stored, message by message. Pure; no Python loop over messages or rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Produced:
    """The messages of one table in one stream: their offsets, rising, and how many rows each has."""

    offsets: Ints
    rows: Ints

    def without(self, dead: Ints) -> Produced:
        """The same messages, of which those at `dead` offsets are to be stored nowhere."""
        return Produced(self.offsets, np.where(np.isin(self.offsets, dead), 0, self.rows))

    def only(self, mask: Mask) -> Produced:
        """The messages that are true in `mask`, which has one value each."""
        return Produced(self.offsets[mask], self.rows[mask])


@dataclass(frozen=True, slots=True)
class Stored:
    """What one replica has of one table and stream, by offset in any order: number of rows and, where the table numbers
    the rows of a message (`_kafka_row`), how many different numbers there are and the highest of them."""

    offsets: Ints
    rows: Ints
    distinct: Ints | None = None
    highest: Ints | None = None

    def only(self, mask: Mask) -> Stored:
        kept = [None if column is None else column[mask] for column in (self.distinct, self.highest)]
        return Stored(self.offsets[mask], self.rows[mask], *kept)


@dataclass(frozen=True, slots=True)
class Example:
    """A message that is not stored as it should be."""

    offset: int
    expected: int
    stored: int
    numbered: int | None
    """How many different row numbers are stored; None when the table does not number rows."""
    waits: bool = False
    """Nothing of it is wrong but that rows are missing, and it need not be loaded yet."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Counts of rows. `examples` are the first offenders by offset, those that only wait last.

    `waiting` are those of the missing rows that need not be loaded yet.
    """

    stored: int
    duplicates: int
    missing: int
    unexpected: int
    examples: tuple[Example, ...]
    waiting: int = 0

    @property
    def exact(self) -> bool:
        return not (self.duplicates or self.missing or self.unexpected)


def still_dead(dead: Ints, stored: Stored) -> Ints:
    """The dead-lettered offsets without those whose rows are stored: one owner set the message aside and the next one
    loaded it after all, so that it has to be there whole."""
    return dead[~np.isin(dead, stored.offsets)]


def compare(produced: Produced, stored: Stored, examples: int = 5, *, promised: int | None = None) -> Difference:
    """Judge one table of one stream on one replica. Every message below offset `promised` has to be loaded; without it,
    every message.

    A row is a duplicate when its message is expected and the row is there already, unexpected when its message is not
    expected in this table or has no such row. Without row numbers only the number of rows of each message can be
    compared."""
    offsets = np.union1d(produced.offsets, stored.offsets)
    expected = _spread(offsets, produced.offsets, produced.rows)
    found = _spread(offsets, stored.offsets, stored.rows)
    if stored.distinct is None or stored.highest is None:
        distinct = np.minimum(found, expected)
        unexpected = np.where(expected == 0, found, 0)
        duplicates = np.where(expected == 0, 0, found - distinct)
        numbered = None
    else:
        numbered = _spread(offsets, stored.offsets, stored.distinct)
        beyond = (found > 0) & (_spread(offsets, stored.offsets, stored.highest) >= expected)
        unexpected = np.where(beyond, np.maximum(numbered - expected, 1), 0)
        unexpected = np.where(expected == 0, found, unexpected)
        distinct = np.where(expected == 0, 0, numbered - unexpected)
        duplicates = np.where(expected == 0, 0, found - numbered)
    missing = expected - distinct
    waits = (missing > 0) & (offsets >= (offsets.max(initial=-1) + 1 if promised is None else promised))
    only_waits = waits & (duplicates == 0) & (unexpected == 0)
    wrong = np.flatnonzero((missing > 0) | (duplicates > 0) | (unexpected > 0))
    first = wrong[np.argsort(only_waits[wrong], kind="stable")][:examples]
    numbers = np.full(len(offsets), None) if numbered is None else numbered
    columns = (offsets, expected, found, numbers, only_waits)
    return Difference(
        stored=int(found.sum()),
        duplicates=int(duplicates.sum()),
        missing=int(missing.sum()),
        unexpected=int(unexpected.sum()),
        examples=tuple(map(Example, *(column[first].tolist() for column in columns))),
        waiting=int(missing[waits].sum()),
    )


def _spread(offsets: Ints, at: Ints, values: Ints) -> Ints:
    """`values` at their place among `offsets`, 0 elsewhere. Equal offsets add up."""
    spread = np.zeros(len(offsets), np.int64)
    np.add.at(spread, np.searchsorted(offsets, at), values)
    return spread
