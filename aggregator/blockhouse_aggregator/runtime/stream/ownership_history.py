"""Which streams this aggregator has owned, from when to when and why no longer, and with what each began."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from blockhouse.contract.diagnosis import Ownership, TakenOverBlock
from blockhouse_aggregator.protocol.state import StreamState

KEPT = 100


class OwnershipHistory:
    """The last `KEPT` times that this process owned a stream, the newest last. On the event loop's thread."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._kept: deque[Ownership] = deque(maxlen=KEPT)

    def all(self) -> Sequence[Ownership]:
        """As the admin API answers them."""
        return tuple(self._kept)

    def began(
        self, stream: str, epoch: int, state: StreamState, table: Callable[[int], str], accepted: str = ""
    ) -> None:
        """`stream` was taken over with `state`; `table` names a table by its number, `accepted` is what a person had to
        accept before. Caller: the stream's report."""
        blocks = [(table(t.table), t.block.intent) for t in state.in_flight if t.block is not None]
        self._kept.append(
            Ownership(
                stream=stream,
                epoch=epoch,
                began_ms=self._now_ms(),
                position=state.position,
                sequence=state.seq,
                replays=tuple(TakenOverBlock(table=name, begin=i.begin, end=i.end) for name, i in blocks),
                accepted=accepted,
                ended_ms=0,
                why="",
            )
        )

    def ended(self, stream: str, epoch: int, why: str) -> None:
        """The stream is not owned any more; nothing to do when it never began. Caller: the stream's report."""
        for index, entry in enumerate(self._kept):
            if (entry.stream, entry.epoch, entry.ended_ms) == (stream, epoch, 0):
                self._kept[index] = entry.model_copy(update={"ended_ms": self._now_ms(), "why": why})
