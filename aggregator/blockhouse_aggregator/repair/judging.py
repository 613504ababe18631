"""What became of each message of a range, by what its table holds. Pure; the range arithmetic is here.

It must never call a message missing whose rows may be anywhere else: in flight, dead-lettered, removed on purpose, or
in the table without a name. Ranges are half-open: [begin, end).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from blockhouse.metadata.model import Metadata
from blockhouse_aggregator.audit.compare import Ints, Mask, Produced
from blockhouse_aggregator.clickhouse.presence import Ambiguous, Complete, Partial, StoredRows, decide


class Verdict(IntEnum):
    """Of one message. From NOT_DONE on it cannot be judged, or must not be loaded."""

    LOADED = 0
    DEAD = 1
    """Dead-lettered, and none of its rows is stored."""
    MISSING = 2
    NOT_DONE = 3
    """Its table lags, or has a block in flight there: its owner loads it."""
    AMBIGUOUS = 4
    """Some of its rows are stored, and nothing shows which."""
    UNKNOWN = 5
    """Its table does not show what is stored."""
    REMOVED = 6
    """Not stored, which may be on purpose, or would not stay without harm."""


@dataclass(frozen=True, slots=True)
class Run:
    """Messages of one table that follow each other in its order, in [begin, end); none of the table's others is
    between them. `rows` are those that are to be in the table, or of missing messages, those that are not."""

    begin: int
    end: int
    messages: int
    rows: int


@dataclass(frozen=True, slots=True)
class Judged:
    """One table's messages in offset order: how many rows each has (`rows`), of how many there is none (`lacking`),
    and the verdict. `surplus` counts stored rows beyond the expected."""

    offsets: Ints
    rows: Ints
    lacking: Ints
    verdicts: npt.NDArray[np.int8]
    surplus: int = 0

    def runs(self, verdict: Verdict) -> tuple[Run, ...]:
        """The messages of this verdict."""
        return runs(self.offsets, self.lacking if verdict is Verdict.MISSING else self.rows, self.verdicts == verdict)

    def count(self, verdict: Verdict) -> int:
        return int((self.verdicts == verdict).sum())

    def doubted(self, verdict: Verdict) -> Judged:
        """The same, with `verdict` in place of MISSING: what is not there may be gone for a reason."""
        changed = np.where(self.verdicts == Verdict.MISSING, np.int8(verdict), self.verdicts)
        return Judged(self.offsets, self.rows, self.lacking, changed, self.surplus)


@dataclass(frozen=True, slots=True)
class TableJudged:
    """A table's messages in the whole range; `why` is, by verdict, a CamelCase reason and a text for people."""

    table: str
    messages: Judged
    why: Mapping[Verdict, tuple[str, str]] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[Run, ...]:
        return self.messages.runs(Verdict.MISSING)

    @property
    def not_judged(self) -> tuple[Verdict, ...]:
        """The verdicts, beyond judgement, that messages of it have."""
        return tuple(v for v in Verdict if v >= Verdict.NOT_DONE and self.messages.count(v))


def judge(produced: Produced, stored: StoredRows, dead: Ints, done_below: int) -> Judged:
    """`produced` are one table's messages of a range, `stored` what the table holds of the same offsets, `dead` the
    dead-lettered offsets. Only below `done_below` everything is stored that ever will be by itself."""
    offsets, rows = produced.offsets, produced.rows
    held = np.fromiter(stored.counts, np.int64, len(stored.counts))
    buried = np.isin(offsets, dead) & ~np.isin(offsets, held)
    undone = offsets >= done_below
    live = ~(buried | undone)
    expected = dict(zip(offsets[live].tolist(), rows[live].tolist(), strict=True))
    lacking, unclear, surplus = _compare(expected, stored)
    missing = np.array([lacking.get(offset, 0) for offset in offsets.tolist()], np.int64)
    verdicts = np.full(len(offsets), Verdict.LOADED, np.int8)
    verdicts[missing > 0] = Verdict.MISSING
    verdicts[np.isin(offsets, unclear)] = Verdict.AMBIGUOUS
    verdicts[buried] = Verdict.DEAD
    verdicts[undone] = Verdict.NOT_DONE
    return Judged(offsets, rows, missing, verdicts, surplus)


def not_known(produced: Produced) -> Judged:
    """Of a table that does not show what is stored."""
    count = len(produced.offsets)
    verdicts = np.full(count, Verdict.UNKNOWN, np.int8)
    return Judged(produced.offsets, produced.rows, np.zeros(count, np.int64), verdicts)


def joined(portions: list[Judged]) -> Judged:
    """Of one table, in offset order."""
    return Judged(
        np.concatenate([portion.offsets for portion in portions]),
        np.concatenate([portion.rows for portion in portions]),
        np.concatenate([portion.lacking for portion in portions]),
        np.concatenate([portion.verdicts for portion in portions]),
        sum(portion.surplus for portion in portions),
    )


def runs(offsets: Ints, rows: Ints, chosen: Mask) -> tuple[Run, ...]:
    """The chosen ones of rising offsets, as runs in which no other one is."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(np.int8)))
    return tuple(
        Run(int(offsets[first]), int(offsets[last - 1]) + 1, int(last - first), int(rows[first:last].sum()))
        for first, last in edges.reshape(-1, 2).tolist()
    )


def cut(messages: Judged, most_rows: int, most_messages: int) -> Iterator[tuple[int, ...]]:
    """The missing messages' offsets in the pieces that become blocks: each follows the other in its table's order, and
    has at most `most_rows` rows, unless it is a single message."""
    waiting: list[int] = []
    rows, last = 0, -2
    for index in np.flatnonzero(messages.verdicts == Verdict.MISSING).tolist():
        more = int(messages.rows[index])
        if waiting and (index != last + 1 or rows + more > most_rows or len(waiting) >= most_messages):
            yield tuple(waiting)
            waiting, rows = [], 0
        waiting.append(int(messages.offsets[index]))
        rows, last = rows + more, index
    if waiting:
        yield tuple(waiting)


def done_below(metadata: Metadata, table_id: int | None) -> int:
    """Below this offset everything of the table is stored or dead-lettered, by what the group has committed: no owner
    inserts there any more. `table_id` None: the metadata cannot name the table."""
    found = metadata.position
    for entry in metadata.tables:
        if entry.table == table_id:
            begins = [] if entry.in_flight is None else [entry.in_flight.begin]
            cursors = [] if entry.cursor is None else [entry.cursor]
            found = min(found, *begins, *cursors)
    return found


def _compare(expected: Mapping[int, int], stored: StoredRows) -> tuple[dict[int, int], Ints, int]:
    """By offset how many rows are not stored; the offsets of which that is not known; and the rows beyond."""
    unclear: tuple[int, ...] = ()
    found = decide(expected, stored)
    if isinstance(found, Ambiguous):
        unclear = found.offsets
        found = decide({offset: rows for offset, rows in expected.items() if offset not in set(unclear)}, stored)
    surplus = sum(count for offset, count in found.surplus.items() if offset in expected)
    if isinstance(found, Partial):
        lacking: dict[int, int] = {}
        for offset, _ in found.missing:
            lacking[offset] = lacking.get(offset, 0) + 1
    elif isinstance(found, Complete | Ambiguous):
        lacking = {}
    else:
        lacking = {offset: rows for offset, rows in expected.items() if offset not in set(unclear)}
    return lacking, np.array(unclear, np.int64), surplus
