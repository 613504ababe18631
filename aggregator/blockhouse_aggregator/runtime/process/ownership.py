"""The streams this aggregator owns, as its group members report them: an owner and its leases for each.

Must never let two owners of one stream work at once: what was assigned again, or dropped, is closed first.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any

import structlog

from blockhouse.errors import BlockhouseError
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.group import DropReason
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.stream.owner import StreamOwner

log = structlog.get_logger(__name__)

REBUILD_PAUSE = 0.5
DRAIN_POLL = 0.1
FAREWELL = 2.0
"""Seconds for tasks to end their conversations before Spark ends them."""

MakeOwner = Callable[[StreamId, int, Callable[[str], None]], StreamOwner]
"""Stream, epoch, and what the owner calls, with a reason, when its state is not to be trusted."""


class OwnedStreams:
    """All methods run on the event loop. `serve` works for an owner until its stream is dropped; `go` starts work in
    the background; after `ending` nothing is taken over again."""

    def __init__(
        self,
        make: MakeOwner,
        serve: Callable[[StreamOwner], Awaitable[None]],
        go: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        ending: asyncio.Event,
    ) -> None:
        self.owners: dict[StreamId, StreamOwner] = {}
        self._make = make
        self._serve = serve
        self._go = go
        self._ending = ending
        self._serving: dict[asyncio.Task[None], str] = {}
        """What works for a stream, and of which cluster it is."""

    def assigned(self, stream: StreamId, epoch: int) -> None:
        """The stream is ours in this epoch."""
        former = self.owners.pop(stream, None)
        if former is not None:
            former.close("assigned again")
        owner = self._make(stream, epoch, lambda reason: self._rebuild(stream, epoch, reason))
        self.owners[stream] = owner
        serving = self._go(self._own(owner))
        self._serving[serving] = stream.cluster
        serving.add_done_callback(self._serving.pop)

    def dropped(self, stream: StreamId, epoch: int, reason: DropReason) -> None:
        """The stream is not ours any more."""
        owner = self.owners.get(stream)
        if owner is not None and owner.epoch == epoch:
            del self.owners[stream]
            owner.close(reason)

    async def drain(self, cluster: str, deadline: float, may_continue: Callable[[], bool]) -> None:
        """Let every owner of one Kafka cluster's streams finish its inserts and record them, until `deadline` on the
        loop's clock at most and while `may_continue()`; then close them. What is left is a replay for the next."""
        await self._settle(self._of(cluster), deadline, may_continue)
        for owner in self._of(cluster):  # also what a rebalance has given us meanwhile
            owner.close("the aggregator ends")
        serving = [task for task, of in self._serving.items() if of == cluster]
        if serving and may_continue():
            await asyncio.wait(serving, timeout=FAREWELL)

    async def finish(self, deadline: float) -> None:
        """Let every owner of any stream finish and record, until `deadline`, and read nothing more; closes none."""
        await self._settle(tuple(self.owners.values()), deadline, lambda: not self._ending.is_set())

    async def settle(self, held: Mapping[StreamId, int]) -> None:
        """The same for streams, by epoch, that are about to be dropped; until they are settled, however long."""
        owners = [owner for s, epoch in held.items() if (owner := self.owners.get(s)) and owner.epoch == epoch]
        await self._settle(owners, math.inf, lambda: True)

    def _of(self, cluster: str) -> list[StreamOwner]:
        return [owner for stream, owner in self.owners.items() if stream.cluster == cluster]

    @staticmethod
    async def _settle(owners: Collection[StreamOwner], deadline: float, may_continue: Callable[[], bool]) -> None:
        for owner in owners:
            owner.drain()
        while not all(owner.clean for owner in owners) and loop_time() < deadline and may_continue():
            await asyncio.sleep(DRAIN_POLL)

    async def _own(self, owner: StreamOwner) -> None:
        try:
            await owner.start()
            await self._serve(owner)
        except Exception as error:  # noqa: BLE001 - a defect met by one stream must not end the others; it is an alarm
            owner.failed(error)

    def _rebuild(self, stream: StreamId, epoch: int, reason: str) -> None:
        """The state is not to be trusted: take the stream over again, after a moment, if it is still ours."""

        async def again() -> None:
            try:
                await asyncio.wait_for(self._ending.wait(), REBUILD_PAUSE)
            except TimeoutError:
                owner = self.owners.get(stream)
                if owner is not None and owner.epoch == epoch and owner.closed.is_set():
                    log.info("stream.rebuild", stream=str(stream), reason=reason)
                    del self.owners[stream]
                    self.assigned(stream, epoch)

        self._go(again())


class OnTheLoop:
    """`kafka.group.GroupListener`: carries a member's callbacks from its thread to the event loop, in order.

    `before_drop` runs in the member's thread, inside the client's revoke callback.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        assigned: Callable[[StreamId, int], None],
        settle: Callable[[Mapping[StreamId, int]], Coroutine[Any, Any, None]],
        dropped: Callable[[StreamId, int, DropReason], None],
        failed: Callable[[BlockhouseError], None],
        recovered: Callable[[], None],
        before_drop: Callable[[StreamId], None],
    ) -> None:
        self._loop = loop
        self._assigned = assigned
        self._settle = settle
        self._dropped = dropped
        self._failed = failed
        self._recovered = recovered
        self._before_drop = before_drop

    def assigned(self, stream: StreamId, epoch: int) -> None:
        """As `GroupListener.assigned`, on the event loop."""
        self._loop.call_soon_threadsafe(self._assigned, stream, epoch)

    def settling(self, held: Mapping[StreamId, int]) -> Future[None]:
        """As `GroupListener.settling`, on the event loop."""
        return asyncio.run_coroutine_threadsafe(self._settle(held), self._loop)

    def dropped(self, stream: StreamId, epoch: int, reason: DropReason) -> None:
        """As `GroupListener.dropped`: `before_drop` on the member's thread, the rest on the event loop."""
        self._before_drop(stream)
        self._loop.call_soon_threadsafe(self._dropped, stream, epoch, reason)

    def failed(self, error: BlockhouseError) -> None:
        """As `GroupListener.failed`, on the event loop."""
        self._loop.call_soon_threadsafe(self._failed, error)

    def recovered(self) -> None:
        """As `GroupListener.recovered`, on the event loop."""
        self._loop.call_soon_threadsafe(self._recovered)
