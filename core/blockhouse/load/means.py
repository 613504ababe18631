"""Means of equal spans of time, the latest of them in a ring: bytes and messages a second by row. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blockhouse.load.figures import UNKNOWN, Codes, Values, coded, decoded

BYTES, MESSAGES = 0, 1


class Means:
    """`count` spans of `seconds` each are kept as 16-bit logarithms; the one that samples come for now as a sum."""

    def __init__(self, seconds: int, count: int) -> None:
        self.seconds, self._count = seconds, count
        self.span = -1
        """Number of the span that is gathered now, counted from the epoch; -1 before the first sample."""
        self._kept = np.zeros((0, count, 2), np.uint16)
        self._spans = np.full(count, -1, np.int64)
        self._sums = np.zeros((0, 2, 2))  # by row: bytes, messages; sum and number of samples

    @property
    def nbytes(self) -> int:
        return self._kept.nbytes + self._sums.nbytes

    def grow(self, rows: int) -> None:
        """Have room for so many rows; new ones know nothing."""
        more = rows - len(self._kept)
        self._kept = np.concatenate([self._kept, np.zeros((more, *self._kept.shape[1:]), np.uint16)])
        self._sums = np.concatenate([self._sums, np.zeros((more, *self._sums.shape[1:]))])

    def forget(self, row: int) -> None:
        self._kept[row] = UNKNOWN
        self._sums[row] = 0

    def advance(self, at: float) -> None:
        """Samples of that moment come next: what was gathered before its span becomes a mean."""
        span = int(at // self.seconds)
        if span == self.span:
            return
        if self.span >= 0:
            column = self.span % self._count
            self._kept[:, column] = coded(self._current())
            self._spans[column] = self.span
            self._sums[:] = 0
        self.span = span

    def add(self, row: int, quantity: int, rate: float) -> None:
        self._sums[row, quantity] += (rate, 1)

    @property
    def spans(self) -> list[int]:
        """The numbers of the spans that are kept, ascending."""
        return sorted(int(span) for span in self._spans if span >= 0)

    def codes(self, span: int) -> Codes:
        """What is kept of this span, or gathered now of the current one, shape (rows, 2)."""
        return coded(self._current()) if span == self.span else self._kept[:, span % self._count]

    def restore(self, span: int, rows: NDArray[np.int64], codes: Codes) -> None:
        """Take over what was kept of a span of these rows; samples are added to what there is of the current one."""
        if span == self.span:
            values = decoded(codes)
            self._sums[rows, :, 0], self._sums[rows, :, 1] = np.nan_to_num(values), np.isfinite(values)
        else:
            self._kept[rows, span % self._count] = codes
            self._spans[span % self._count] = span

    @property
    def reach(self) -> int:
        """The moment back to which the ring reaches if every span had samples; older columns may still be in it."""
        return (self.span - self._count + 1) * self.seconds

    def where(self, begin: float, end: float = float("inf")) -> NDArray[np.bool_]:
        """Which columns of the ring are of spans that overlap [begin, end)."""
        spans = self._spans
        return (spans >= 0) & ((spans + 1) * self.seconds > begin) & (spans * self.seconds < end)

    def oldest(self, columns: NDArray[np.bool_]) -> int:
        """The moment at which the oldest of these begins, or the current span where there is none."""
        span = self._spans[columns].min() if columns.any() else self.span
        return int(span) * self.seconds

    def of(self, columns: NDArray[np.bool_], index: NDArray[np.int64] | slice = slice(None)) -> Values:
        """The means of these columns, shape (rows, columns, 2)."""
        return decoded(self._kept[index][:, columns])

    def with_current(self, columns: NDArray[np.bool_], index: NDArray[np.int64]) -> Values:
        """As `of`, and the span that is gathered now as the last column."""
        return np.concatenate([self.of(columns, index), self._current(index)[:, None, :]], axis=1)

    def _current(self, index: NDArray[np.int64] | slice = slice(None)) -> Values:
        with np.errstate(invalid="ignore", divide="ignore"):
            found: Values = self._sums[index, :, 0] / self._sums[index, :, 1]
        return found
