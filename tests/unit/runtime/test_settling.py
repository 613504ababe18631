"""Streams that are about to be taken away are settled first, and only those."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from blockhouse.streams import StreamId
from blockhouse_aggregator.runtime.process.ownership import OwnedStreams
from blockhouse_aggregator.runtime.stream.owner import StreamOwner

STREAMS = [StreamId("a", "events", number) for number in range(3)]


class Owner:
    """A stream's owner that is asked to finish."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.drained = self.clean = self.closed = False

    def drain(self) -> None:
        self.drained = True

    def close(self, why: str) -> None:
        self.closed = True


def owned(owners: dict[StreamId, Owner]) -> OwnedStreams:
    unused = cast(Any, None)
    streams = OwnedStreams(unused, unused, unused, asyncio.Event())
    streams.owners = cast(dict[StreamId, StreamOwner], owners)
    return streams


async def test_streams_are_settled_when_all_of_them_have_finished_and_are_recorded() -> None:
    first, second, kept = owners = [Owner(1), Owner(2), Owner(2)]
    settling = asyncio.ensure_future(
        owned(dict(zip(STREAMS, owners, strict=True))).settle({STREAMS[0]: 1, STREAMS[1]: 2})
    )
    first.clean = True
    done, _ = await asyncio.wait({settling}, timeout=0.3)
    assert not done, "one is not settled yet"
    second.clean = True
    await asyncio.wait_for(settling, 5)
    assert [owner.drained for owner in owners] == [True, True, False]
    assert not kept.drained


async def test_an_owner_of_another_epoch_is_left_alone() -> None:
    newer = Owner(5)
    await asyncio.wait_for(owned({STREAMS[0]: newer}).settle({STREAMS[0]: 4, STREAMS[1]: 4}), 5)
    assert not newer.drained


async def test_a_cluster_is_released_when_its_own_streams_have_finished() -> None:
    """Another cluster's insert may take long: the next owners of these streams do not wait for it."""
    slow, done = Owner(1), Owner(1)
    done.clean = True
    streams = owned({StreamId("a", "events", 0): slow, StreamId("b", "events", 0): done})
    deadline = asyncio.get_running_loop().time() + 30
    await asyncio.wait_for(streams.drain("b", deadline, lambda: True), 5)
    assert (done.closed, slow.closed, slow.drained) == (True, False, False)
    ending = asyncio.ensure_future(streams.drain("a", deadline, lambda: True))
    finished, _ = await asyncio.wait({ending}, timeout=0.3)
    assert not finished, "what is in flight is waited for"
    slow.clean = True
    await asyncio.wait_for(ending, 5)
    assert slow.closed
