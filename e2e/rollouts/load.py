"""Producers of two revisions: those that lag behind keep the old one, beside those that have the new columns."""

from __future__ import annotations

from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.produce.pool import MessagePool

SEED_BITS = 1023
"""As many bits of a row's unique number are the seed of the pool it is from."""


class MixedPool(MessagePool):
    """Messages of one table at the revision it had first, and from `add` on of each revision in turn."""

    def __init__(self, table: TableHistory, seed: int) -> None:
        super().__init__(table, seed)
        self._base_seed = seed
        self._own = self.headers
        self._newer: tuple[MessagePool, ...] = ()
        self._turn = 0

    @property
    def seeds(self) -> tuple[int, ...]:
        """What the pools of the revisions, oldest first, put into their rows' numbers."""
        return tuple((self._base_seed + number) & SEED_BITS for number in range(1 + len(self._newer)))

    def add(self, table: TableHistory) -> None:
        """Send the present revision of `table` too."""
        self._newer = (*self._newer, MessagePool(table, self._base_seed + 1 + len(self._newer)))

    def message(self, rows: int) -> bytes:
        pools = self._newer
        self._turn += 1
        turn = self._turn % (1 + len(pools))
        if turn == 0:
            self.headers = self._own
            return super().message(rows)
        self.headers = pools[turn - 1].headers
        return pools[turn - 1].message(rows)
