"""The log of one partition, and what was in it before it was cut or its topic made again.

A message is known by more than its offset: by the incarnation of its topic, and by the cut of the log after which it
was written. So two messages of one offset are two, for the oracle if for no replica.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter

from blockhouse.streams import StreamId

HOLE, HEADLESS, BAD = -1, -2, 1000
"""What an offset holds: nothing, a message without a table, or (from BAD on) an undecodable message of a table."""

Message = tuple[int, int, int]
"""Offset, number of the topic's incarnation, number of the cut after which it was written."""


class Content:
    """A log between two events: the table number of each offset, or one of the kinds above. `written` and `epochs` are
    by first offset: incarnation and cut, and the leader's epoch. `since` is where it differs from what was before."""

    def __init__(
        self, kinds: list[int], written: list[tuple[int, int, int]], epochs: list[tuple[int, int]], since: int = 0
    ) -> None:
        self.kinds, self.written, self.epochs, self.since = kinds, written, epochs, since

    @property
    def end(self) -> int:
        return len(self.kinds)

    @property
    def topic(self) -> int:
        """The incarnation it is of; what a reader has joined is of its last one."""
        return self.written[-1][1]

    @property
    def leader_epoch(self) -> int:
        return self.epochs[-1][1]

    def message(self, offset: int) -> Message:
        if len(self.written) == 1:
            return (offset, *self.written[0][1:])
        return (offset, *self.written[bisect_right(self.written, offset, key=itemgetter(0)) - 1][1:])

    def good(self, table: int, begin: int, end: int) -> tuple[Message, ...]:
        """The table's storable messages in [begin, end)."""
        return tuple(self.message(o) for o in range(begin, min(end, self.end)) if self.kinds[o] == table)

    # --- leader epochs --------------------------------------------------------------------------------------

    def epoch_of(self, offset: int) -> int:
        """The epoch in which the offset was written, or will be."""
        return self.epochs[bisect_right(self.epochs, offset, key=itemgetter(0)) - 1][1]

    def epoch_at(self, position: int) -> int:
        """The epoch of a reader's position: that of the record before it, which may be a marker. -1: none was read."""
        return self.epoch_of(position - 1) if position > 0 else -1

    def reaches(self, position: int, epoch: int) -> bool:
        """As a leader answers OffsetsForLeaderEpoch: whether that epoch, or the last one before it, ends there or
        beyond."""
        later = [first for first, number in self.epochs if number > epoch]
        return position <= (min(later) if later else self.end)

    def elect(self) -> None:
        """Another leader, which has everything."""
        self.epochs.append((self.end, self.leader_epoch + 1))

    # --- what becomes of it ---------------------------------------------------------------------------------

    def cut(self, at: int) -> Content:
        """A leader that had only [0, at) was elected."""
        _, topic, cuts = self.written[-1]
        written = [w for w in self.written if w[0] < at]
        epochs = [epoch for epoch in self.epochs if epoch[0] < at]
        return Content(
            self.kinds[:at], [*written, (at, topic, cuts + 1)], [*epochs, (at, self.leader_epoch + 1)], since=at
        )

    def joined(self, later: Content, at: int) -> Content:
        """What a reader has that read this up to `at` and then, unaware, continued in a later one."""
        written = [w for w in self.written if w[0] < at] + [(at, *later.message(at)[1:])]
        written += [w for w in later.written if w[0] > at]
        kinds = self.kinds[:at] + later.kinds[at:]
        return Content(kinds, written, list(later.epochs))


class StreamLog:
    """One partition. `contents` are what it held, oldest first; `dead` are messages with a dead letter. `silent`: no
    producer writes to it any more."""

    def __init__(self, stream: StreamId, zone: int) -> None:
        self.stream = stream
        self.zone = zone
        self.contents = [Content([], [(0, 0, 0)], [(0, 0)])]
        self.dead: set[Message] = set()
        self.silent = False

    @property
    def content(self) -> Content:
        return self.contents[-1]

    @property
    def kinds(self) -> list[int]:
        return self.content.kinds

    @property
    def end(self) -> int:
        return self.content.end

    def cut(self, at: int) -> None:
        self.contents.append(self.content.cut(at))

    def create_again(self, topic: int) -> None:
        """Its topic was deleted and made again, as the `topic`-th of its name."""
        self.contents.append(Content([], [(0, topic, 0)], [(0, 0)]))
