"""What of a block is stored already? The pure decision behind every intent too old to trust deduplication.

Pure: no I/O, no clock. It must never guess: rows that cannot be separated are reported as Ambiguous, never inserted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Origin:
    """Which stream a block's rows are of, and what separates them from those of another topic.

    `topic` is what `_kafka_topic` holds in them, empty when the block's revision has no such column. Rows without it
    answer for the block only if they are the stream's for certain, `sole`: its topic was never created again, and no
    one else loads the table.
    """

    cluster: str
    partition: int
    topic: str = ""
    sole: bool = True


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows of one block found in a table, by message offset.

    `counts` is how many rows each offset has; offsets without rows are absent. `rows` are the row numbers inside the
    message, each as often as it is stored, or None when the table has no `_kafka_row`.
    """

    counts: Mapping[int, int]
    rows: Mapping[int, tuple[int, ...]] | None = None

    def and_those_of(self, other: StoredRows) -> StoredRows:
        """The rows of both, which are of one table."""
        counts = Counter(self.counts)
        counts.update(other.counts)
        if self.rows is None or other.rows is None:
            return StoredRows(counts)
        both = {offset: (*self.rows.get(offset, ()), *other.rows.get(offset, ())) for offset in counts}
        return StoredRows(counts, both)


@dataclass(frozen=True, slots=True)
class Absent:
    """No row of the block is stored: insert it."""

    surplus: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Complete:
    """Every row is stored: acknowledge it. `surplus` is, by offset, how many rows are stored above the expected."""

    surplus: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Partial:
    """Some rows are stored (a block over several partitions, written in part): insert exactly `missing`.

    `missing` is (offset, row inside the message), in block order.
    """

    missing: tuple[tuple[int, int], ...]
    surplus: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """These offsets have some of their rows; without `_kafka_row` no one can determine which: a person must decide."""

    offsets: tuple[int, ...]
    surplus: Mapping[int, int] = field(default_factory=dict)


Presence = Absent | Complete | Partial | Ambiguous


def decide(expected: Mapping[int, int], stored: StoredRows) -> Presence:
    """Compare a block with what is stored. `expected` is the number of rows of each of its offsets, in block order.

    The four answers, for a block of offset 7 with two rows and offset 9 with one:
      {} -> Absent        {7: 2, 9: 1} -> Complete        {7: 2} -> Partial((9, 0))
      {7: 1} -> Partial with row numbers, Ambiguous without
    Rows above the expected, or of an offset the block does not have, are an anomaly (duplicates, or another pipeline
    of the same name): reported as `surplus` with every answer.
    """
    surplus: dict[int, int] = {}
    missing: list[tuple[int, int]] = []
    unclear: list[int] = []
    for offset, rows in expected.items():
        present = stored.counts.get(offset, 0)
        if stored.rows is not None:
            held = Counter(stored.rows.get(offset, ()))
            missing += [(offset, row) for row in range(rows) if row not in held]
            extra = sum(times if row >= rows else times - 1 for row, times in held.items())
        else:
            if 0 < present < rows:
                unclear.append(offset)
            elif present == 0:
                missing += [(offset, row) for row in range(rows)]
            extra = max(0, present - rows)
        if extra:
            surplus[offset] = extra
    surplus |= {offset: count for offset, count in stored.counts.items() if offset not in expected}
    if unclear:
        return Ambiguous(tuple(unclear), surplus)
    if not missing:
        return Complete(surplus)
    if len(missing) == sum(expected.values()):
        return Absent(surplus)
    return Partial(tuple(missing), surplus)
