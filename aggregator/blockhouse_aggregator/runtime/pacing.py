"""How large the next round's blocks may be. Pure: what was observed goes in, limits come out.

Large blocks more than halve what ClickHouse spends, small ones keep rows fresh: blocks grow while the stream is behind
or inserts cannot keep the cadence, and shrink as soon as it has caught up.
"""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse.config.pipeline import MAX_ROWS, Blocks

GROWN_BYTES = 128 << 20
"""What the grown blocks of all streams may hold together: a takeover of many streams must not exhaust the memory."""
CATCH_UP_AGE, LATE_AGE = 10.0, 2.5
"""Seconds a block may be gathered: while catching up, long enough to fill the largest; while inserts merely cannot keep
the cadence, so short that rows stay fresh."""


@dataclass(frozen=True, slots=True)
class Pace:
    """`factor` (a power of two from 1) by which the configured block limits are stretched now, and whether because the
    stream is behind (`catching_up`) or only because inserts are slow."""

    factor: int = 1
    catching_up: bool = False

    def max_bytes(self, blocks: Blocks, streams: int = 1) -> int:
        """Of a block of one of `streams` streams that this aggregator owns."""
        share = GROWN_BYTES // max(1, streams)
        return max(blocks.max_bytes, min(blocks.max_bytes * self.factor, blocks.grow_to_bytes, share))

    def max_rows(self, blocks: Blocks) -> int:
        return min(blocks.max_rows * self.factor, MAX_ROWS)

    def max_age(self) -> float:
        """The least age of a block, in seconds; 0 for the configured one."""
        if self.catching_up:
            return CATCH_UP_AGE
        return LATE_AGE if self.factor > 1 else 0.0


def next_pace(pace: Pace, blocks: Blocks, *, behind: int, taken: int, late: bool) -> Pace:
    """The pace after a round that took `taken` messages and left `behind` unread; `late` when its inserts took longer
    than the blocks' age, so that the next round begins behind time."""
    ceiling = max(1, -(-blocks.grow_to_bytes // blocks.max_bytes))
    little = behind * 4 < taken
    # A stream that was behind is so until it has read all but what came meanwhile: its last block need not wait for its
    # age. A round that took nothing has not: what it says of the log may be from before the broker's first answer.
    catching_up = behind > taken or (pace.catching_up and not little)
    if behind > taken or late:
        return Pace(min(pace.factor * 2, ceiling), catching_up)
    if little or taken == 0:
        return Pace(max(1, pace.factor // 2), catching_up)
    return Pace(pace.factor, catching_up)
