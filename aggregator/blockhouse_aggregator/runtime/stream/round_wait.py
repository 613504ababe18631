"""For how long a stream's next round waits for the blocks of the last one. Pure: what was observed goes in.

A table whose block is still in flight when a round begins is left out of it and read again in the round after, so that
its rows wait for a whole round more; yet one slow table must not keep the others waiting for long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

SMALL_WAIT, LARGE_WAIT = 1.0, 8.0
"""Seconds; the longer when most of what the round would read would have to be read again."""
LARGE, MOST = 0.25, 0.5
"""Shares of the new messages: of a table that counts, and of all such tables that are worth the longer wait."""
LATER = 2.0
"""How many times as long as the first block of a round took the others are waited for, when that is more than
SMALL_WAIT: where all inserts are slow, the rest come soon after, and a round that left them out would be slow too."""


@dataclass(slots=True)
class RoundWait:
    """For tables with a block in the last round, or replay, since the moment `since` (seconds of any clock). `shares`
    are theirs of the new messages; `first` is how many seconds the first block took, 0 before it is stored."""

    shares: Mapping[str, float]
    since: float
    first: float = 0.0

    def continues(self, in_flight: Collection[str], now: float) -> bool:
        """Whether the next round is still to wait, with blocks of these tables `in_flight`. Asked again and again: it
        notes when the first block is no longer among them."""
        shares = [self.shares[table] for table in in_flight if table in self.shares]
        waited = now - self.since
        if len(shares) < len(self.shares):
            self.first = self.first or waited
        much = sum(share for share in shares if share > LARGE) > MOST
        patience = LARGE_WAIT if much else min(LARGE_WAIT, max(SMALL_WAIT, LATER * self.first))
        return bool(shares) and waited < patience
