"""How far one partition is, inside the task that mirrors it: what was sent, what is acknowledged. Pure.

The client keeps the order of a partition's records, leaves no gap and acknowledges them in order, so a queue is enough,
and the last of a run of records answers for all of it. A position never passes a record that is not acknowledged (M2),
and the tail never passes a record above the position.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class OutOfOrder(Exception):
    """An acknowledgement that cannot be of the oldest records in flight: the client did not keep the order."""


class Run(NamedTuple):
    """Records that were sent one behind the other, of which the last one alone is acknowledged: source offsets of the
    first and the last one, their number and bytes, the oldest of their timestamps and the sum, in milliseconds."""

    first: int
    last: int
    records: int
    bytes: int
    oldest_ms: int
    sum_ms: int

    @classmethod
    def of_one(cls, offset: int, size: int, timestamp_ms: int) -> Run:
        return cls(offset, offset, 1, size, timestamp_ms, timestamp_ms)


class Progress:
    """Of one partition, from the source offset and the target offset on at which the task begins."""

    __slots__ = (
        "_epochs", "_in_flight", "after", "bytes", "in_flight_bytes", "left_out", "letters", "read", "read_epoch",
        "records", "tail",
    )  # fmt: skip

    def __init__(self, offset: int, epoch: int, tail: int) -> None:
        self.read = offset
        """Source position of the reader: all below was sent, left out, or is a hole."""
        self.after = offset
        """The source position behind the last record that was sent: the link to the next one (`provenance.Origin`)."""
        self.tail = tail
        """Target offset behind the last record that is acknowledged."""
        self.in_flight_bytes = 0
        self.records = self.bytes = self.left_out = self.letters = 0
        self._in_flight: deque[Run] = deque()
        self.read_epoch = epoch
        """Leader epoch in which the last record was read, -1 if unknown."""
        self._epochs: list[tuple[int, int]] = [(offset, epoch)]  # leader epochs, each by the offset it begins above

    @property
    def position(self) -> int:
        """Source offset below which everything is on the target, a dead letter, left out, or a hole."""
        return self._in_flight[0].first if self._in_flight else self.read

    @property
    def epoch(self) -> int:
        """Leader epoch of the last record below the position, -1 if unknown."""
        position = self.position
        while len(self._epochs) > 1 and self._epochs[1][0] < position:
            del self._epochs[0]
        return self._epochs[0][1]

    @property
    def settled(self) -> bool:
        return not self._in_flight

    def last_in_flight(self, number: int) -> int:
        """The source offset of the last record of a run, by how many were sent before it and are in flight, too; of the
        newest run if there are not so many."""
        return self._in_flight[min(number, len(self._in_flight) - 1)].last

    def sent(self, run: Run) -> None:
        """These were handed to the producer."""
        self._in_flight.append(run)
        self.in_flight_bytes += run.bytes
        self.read = self.after = run.last + 1

    def leave_out(self, offset: int) -> None:
        """A record that is not mirrored on purpose."""
        self.left_out += 1
        self.read = offset + 1

    def advance(self, offset: int) -> None:
        """The reader is at `offset`: what is between is a hole (control records, compaction)."""
        self.read = max(self.read, offset)

    def in_epoch(self, offset: int, epoch: int) -> None:
        """The record at `offset` was read in this leader epoch."""
        if epoch != self.read_epoch:
            self.read_epoch = epoch
            self._epochs.append((offset, epoch))

    def acknowledged(self, target_offset: int) -> Run:
        """The oldest run in flight is on the target, which has its last record at that offset. Raises OutOfOrder."""
        if not self._in_flight:
            raise OutOfOrder(f"target offset {target_offset} was acknowledged, and nothing is in flight")
        run = self._in_flight[0]
        if target_offset < self.tail + run.records - 1:
            raise OutOfOrder(f"target offset {target_offset} was acknowledged for {run.records} behind {self.tail}")
        self._in_flight.popleft()
        self.in_flight_bytes -= run.bytes
        self.records += run.records
        self.bytes += run.bytes
        self.tail = target_offset + 1
        return run

    def lettered(self, after: int) -> None:
        """The one record in flight is not on the target, its dead letter is. The next record follows on what was there
        before, `after`: as one that was left out, it is passed by a later task only if something came behind it."""
        self.letters += 1
        read = self.read
        self.unsent(after)
        self.read = read

    def unsent(self, after: int) -> None:
        """The one record in flight was refused: all is as before it was sent. Raises OutOfOrder if it is not alone."""
        if [run.records for run in self._in_flight] != [1]:
            raise OutOfOrder(f"{len(self._in_flight)} runs of records were in flight when one record was refused")
        run = self._in_flight.popleft()
        self.read = run.first
        self.in_flight_bytes -= run.bytes
        self.after = after
