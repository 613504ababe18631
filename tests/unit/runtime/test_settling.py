"""Streams that are about to be taken away are settled first, and only those."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from blockhouse.streams import StreamId
from blockhouse_aggregator.runtime.owner import StreamOwner
from blockhouse_aggregator.runtime.ownership import OwnedStreams

STREAMS = [StreamId("a", "events", number) for number in range(3)]


class Owner:
    """A stream's owner that is asked to finish."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.drained = self.clean = False

    def drain(self) -> None:
        self.drained = True


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
