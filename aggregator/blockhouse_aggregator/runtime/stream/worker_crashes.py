"""Counts the workers that died over an order of one stream, so that the next one gets a careful order.

An order that is not answered has taken its worker with it, whatever the cause: a crash, an exception, a hang that the
driver ended. Kept for as long as this process lives, over leases and epochs; never in the metadata: another owner
counts from zero.
"""

from __future__ import annotations

from collections import Counter
from typing import assert_never

import structlog

from blockhouse_aggregator.gate.messages import BlockKey, Bye, Rebuilt, Replay, Scan, Sealed, Stop, Trouble

log = structlog.get_logger(__name__)

CRASHES = 2
"""Crashes at one place from which on orders are careful: one alone is a worker that was evicted, or bad luck."""

Order = Scan | Replay | Stop
Place = tuple[str, int] | BlockKey
"""Where a scan begins, and in which of the two directions; or a block that is replayed."""


class WorkerCrashes:
    """Of one stream. `given` before an order is sent, `heard` after its answer; an order given and never heard of, not
    even as None, counts too."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._tries: Counter[Place] = Counter()

    def given(self, order: Order) -> Order:
        """The order as it is to be sent."""
        places = places_of(order)
        careful = any(self._tries[place] >= CRASHES for place in places)
        self._tries.update(places)
        if not careful or isinstance(order, Stop):
            return order
        log.warning("order.careful", stream=self._stream, order=order.type, places=[str(place) for place in places])
        return order.model_copy(update={"careful": True})

    def heard(self, order: Order, answer: Sealed | Rebuilt | Trouble | Bye | None, *, dropped: bool) -> None:
        """`dropped`: the stream was, so that silence means nothing. Trouble is no progress, and no death."""
        for place in places_of(order):
            if isinstance(answer, Sealed | Rebuilt):
                del self._tries[place]
            elif dropped or answer is not None:
                self._tries[place] -= 1


def places_of(order: Order) -> tuple[Place, ...]:
    """What an order is counted under: the same for the same order given again, whatever its round."""
    match order:
        case Scan(position=position, stop=stop):
            return ((("scan" if stop is None else "catch-up"), position),)
        case Replay(blocks=blocks):
            return tuple(BlockKey(table=block.table, begin=block.begin, end=block.end) for block in blocks)
        case Stop():
            return ()
        case _:
            assert_never(order)
