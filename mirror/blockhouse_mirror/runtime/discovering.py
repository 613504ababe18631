"""Finds topics and partitions, and the position of each that is new; what was created again stops."""

from __future__ import annotations

import asyncio
import contextlib

from blockhouse.errors import Retryable
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.kafka.bounds import LogBounds
from blockhouse_mirror.kafka.positions import PositionGroup
from blockhouse_mirror.kafka.topics import Discovery, MirrorTopics
from blockhouse_mirror.protocol.position import Holder, Position
from blockhouse_mirror.runtime.clock import boot_time
from blockhouse_mirror.runtime.mirrored import Mirrored
from blockhouse_mirror.runtime.partitions import Partition
from blockhouse_mirror.runtime.position_writer import PROOF_SECONDS

JOIN_SECONDS = 30.0
NO_ANSWER = "its leader does not answer where its log begins and ends"


class Discovering:
    """Of one driver. `look_now` lets the next look begin at once."""

    def __init__(
        self, mirrored: Mirrored, topics: MirrorTopics, group: PositionGroup, source: LogBounds, target: LogBounds
    ) -> None:
        self.look_now = asyncio.Event()
        self._mirrored, self._topics, self._group = mirrored, topics, group
        self._source, self._target = source, target
        self._from_latest: set[Key] = set()

    async def take_over(self) -> Discovery:
        """Join the group, which fences a former driver; then read what it left. Raises Retryable or Permanent."""
        found = await self._look()
        await self.found(found, first=True)
        return found

    async def run(self) -> None:
        """Look again and again."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.look_now.wait(), self._mirrored.config.target_topics.interval)
            self.look_now.clear()
            try:
                await self.found(await self._look())
                self._mirrored.worked("discovery")
            except Retryable as error:
                self._mirrored.failed("discovery", error)

    async def _look(self) -> Discovery:
        found = await asyncio.to_thread(self._topics.discover)
        targets = {topic.target for topic in found.topics}
        if targets:
            await asyncio.to_thread(self._group.subscribe, targets, JOIN_SECONDS)
        return found

    async def found(self, found: Discovery, *, first: bool = False) -> None:
        """New partitions get their position, those of topics that were created again stop, gone ones are let go."""
        self._mirrored.discovery = found
        self._mirrored.partitions.seen(found)
        # Also those whose position could not be read before: without it they would be mirrored again from the start.
        new = [each for each in self._mirrored.partitions if each.position is None]
        if not new:
            return
        stored = await asyncio.to_thread(self._group.read, [each.target for each in new])
        if first and not stored and self._mirrored.config.start == "Latest":
            self._from_latest = {each.key for each in new}
        now = boot_time()
        missing = []
        for each in new:
            position = stored.get(each.target)
            if position is None:
                missing.append(each)
                continue
            each.position = each.stored = position
            each.lateness.reached(position.offset)
            if position.holder is Holder.GRANTED:
                self._mirrored.ownership.wait(each.key, now + PROOF_SECONDS)
        await self._begin(missing, found)

    async def _begin(self, partitions: list[Partition], found: Discovery) -> None:
        """Positions of partitions that have none yet."""
        if not partitions:
            return
        sources = await asyncio.to_thread(self._source.of, [each.key for each in partitions])
        targets = await asyncio.to_thread(self._target.of, [each.target for each in partitions])
        for each in partitions:
            source, target = sources.get(each.key), targets.get(each.target)
            if source is None or target is None:
                each.waits = NO_ANSWER
                continue
            start = source.end if each.key in self._from_latest else source.begin
            self._from_latest.discard(each.key)
            position = Position(
                cluster=found.source_cluster,
                topic_id=each.topic.topic_id,
                start=start,
                offset=start,
                epoch=-1,
                target_topic_id=each.topic.target_id,
                tail=target.end,
            )
            self._mirrored.partitions.moved(each.key, position)
