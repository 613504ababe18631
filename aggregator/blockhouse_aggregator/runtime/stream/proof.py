"""The right to insert, proven by ZooKeeper right before the first byte of a block.

A grant is a promise that was true when it was given. A process that is suspended keeps it, and its clock may stand
still meanwhile: woken hours later, nothing it knows by itself shows it so. So the task asks, and one transaction
answers: the table's lock is still ours, no other owner has claimed the stream, and what is committed of it goes into
its marker, which is therefore never behind a stored block. Clocks decide nothing here.

What it cannot prevent: a freeze after the answer, or inside the server. That only deduplication covers.
"""

from __future__ import annotations

import asyncio

from blockhouse.errors import Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import Claim
from blockhouse_aggregator.protocol.state import StreamState
from blockhouse_aggregator.runtime.ports import Lock, Markers


class InsertProof:
    """Of one stream in one epoch; `owner` is a name that no other owner, before or after, has."""

    def __init__(self, stream: StreamId, owner: str, markers: Markers) -> None:
        self._stream, self._owner, self._markers = stream, owner, markers
        self._one_by_one = asyncio.Lock()
        """Two transactions of ours at once would each find the other's change."""

    async def give(self, state: StreamState | None, lock: Lock, history: str) -> None:
        """Returns when an insert under the lock may begin now; `history` is the identity of the schema history.

        Raises Retryable when it may not, or when that cannot be known.
        """
        recorded = state.recorded if state is not None else None
        if recorded is None:
            raise Retryable(f"{self._stream}: dropped, or nothing of it is committed: no insert may begin")
        if not lock.valid:
            raise Retryable(f"{self._stream}: the table's lock was lost before the insert", after=0.5)
        claim = Claim(self._owner, recorded.topic_id, recorded.seq, recorded.position, history)
        async with self._one_by_one:
            await self._markers.prove(self._stream, claim, lock)
