"""How large the next round's blocks may be. Pure: what was observed goes in, limits come out.

Large blocks more than halve what ClickHouse spends, small ones keep rows fresh: blocks grow while the stream is behind
or inserts cannot keep the cadence, and shrink as soon as it has caught up. What ClickHouse and ZooKeeper spend follows
the number of blocks, so that inserts which take long are answered by gathering longer, before they cannot keep up.
"""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse.config.pipeline import GROWN_BYTES, MAX_ROWS, Blocks

CATCH_UP_AGE, SLOW_AGE = 10.0, 2.0
"""Seconds a block may be gathered: while catching up, long enough to fill the largest; while inserts are merely slow,
so short that rows stay fresh."""
STRETCH = 2.0
"""How many times its configured age a block may be gathered while inserts are slow."""
GATHERING = 5.0
"""How many times as long as inserts take blocks are gathered: what is idle in between is what a shard has left when an
aggregator restarts and its streams move."""
MEMORY, MOST = 0.25, 1.0
"""Weight of the last round in the mean of how long inserts take, and the seconds it counts for at most: rows are not to
be old for long after one replay or outage."""


@dataclass(frozen=True, slots=True)
class Pace:
    """`factor` (a power of two from 1) by which the configured block limits are stretched now; whether the stream is
    behind (`catching_up`); how long a round waits for the inserts of the one before (`waited`), in seconds: a mean."""

    factor: int = 1
    catching_up: bool = False
    waited: float = 0.0

    def max_bytes(self, blocks: Blocks, streams: int = 1) -> int:
        """Of a block of one of `streams` streams that this aggregator owns."""
        share = GROWN_BYTES // max(1, streams)
        return max(blocks.max_bytes, min(blocks.max_bytes * self.factor, blocks.grow_to_bytes, share))

    def max_rows(self, blocks: Blocks) -> int:
        return min(blocks.max_rows * self.factor, MAX_ROWS)

    def max_age(self, blocks: Blocks) -> float:
        """The least age of a block, in seconds: the configured one may be longer."""
        return CATCH_UP_AGE if self.catching_up else min(GATHERING * self.waited, SLOW_AGE, STRETCH * blocks.max_age)


def next_pace(pace: Pace, blocks: Blocks, *, behind: int, taken: int, waited: float | None) -> Pace:
    """The pace after a round that took `taken` messages and left `behind` unread, and began `waited` seconds after the
    one before was sealed, when its blocks were stored; None for a lease's first, which follows no other."""
    ceiling = max(1, -(-blocks.grow_to_bytes // blocks.max_bytes))
    little = behind * 4 < taken
    # A stream that was behind is so until it has read all but what came meanwhile: its last block need not wait for its
    # age. A round that took nothing has not: what it reports of the log may be from before the broker's first answer.
    catching_up = behind > taken or (pace.catching_up and not little)
    late = taken > 0 and waited is not None and waited > 2 * blocks.max_age
    mean = pace.waited if waited is None else pace.waited + MEMORY * (min(waited, MOST) - pace.waited)
    factor = pace.factor
    if behind > taken or late:
        factor = min(factor * 2, ceiling)
    elif little or taken == 0:
        factor = max(1, factor // 2)
    return Pace(factor, catching_up, mean)
