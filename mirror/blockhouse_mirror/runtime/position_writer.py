"""Writes positions to the target, which proves again and again that the mirror is still this driver's."""

from __future__ import annotations

import asyncio

from blockhouse.errors import Permanent, Retryable
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.kafka.positions import ANSWER_SECONDS, PositionGroup
from blockhouse_mirror.kafka.topic_ids import TopicIds
from blockhouse_mirror.protocol.position import Position
from blockhouse_mirror.protocol.takeover import Reason, Stop
from blockhouse_mirror.runtime.clock import boot_time
from blockhouse_mirror.runtime.mirrored import Mirrored

PROOF_SECONDS = 3.0
"""Tasks hear that their grants hold only while positions were written within so many seconds: after that another
driver may have joined. One that joins waits as much longer for tasks that it does not know."""
PROOF_INTERVAL = 1.0


class PositionWriter:
    """Of one driver. `proven_at` is when it was last certain to be the only one (boot time)."""

    def __init__(self, mirrored: Mirrored, group: PositionGroup, source_ids: TopicIds) -> None:
        self.proven_at = 0.0
        self._mirrored, self._group, self._source_ids = mirrored, group, source_ids
        self._writing = asyncio.Lock()

    def ours(self) -> bool:
        """Whether positions were written so lately that no other driver's tasks can have begun."""
        return not self._group.fenced and boot_time() - self.proven_at < PROOF_SECONDS

    async def run(self) -> None:
        """Write for as long as the mirror is ours. Raises Permanent `MirrorFenced`."""
        while True:
            try:
                await self.write()
                self._mirrored.worked("positions")
            except Retryable as error:
                self._mirrored.failed("positions", error)
            await asyncio.to_thread(self._group.poll)
            if self._group.fenced:
                raise Permanent(self._group.fenced, reason="MirrorFenced")
            await asyncio.sleep(min(PROOF_INTERVAL, self._mirrored.config.commit_interval))

    async def write(self) -> None:
        """Write what changed; when it returns, everything that had changed before is written. Raises Retryable, after
        which it is written again, or Permanent `MirrorFenced`."""
        async with self._writing:  # or one that is under way could fail after this one has found nothing to write
            partitions = self._mirrored.partitions
            positions = dict(partitions.unwritten())
            verified = False
            try:
                await self._verify(positions)
                verified = True
                await self._write(positions)
            except BaseException as error:  # also where it is cancelled: the last write of a driver has to find them
                partitions.not_written(positions)
                if not verified and isinstance(error, Retryable):
                    await self._write({})
                raise

    async def _write(self, positions: dict[Key, Position]) -> None:
        asked_at = boot_time()
        every = {each.target: each for each in self._mirrored.partitions}
        if not positions:  # any one that is written already: it is the answer that counts
            stored = ((target, each.stored) for target, each in every.items() if each.stored is not None)
            positions = dict([found] if (found := next(stored, None)) is not None else [])
        if positions:
            late = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._late)
            try:
                await asyncio.to_thread(self._group.write, positions)
            finally:
                late.cancel()
        for target, position in positions.items():
            if target in every:
                every[target].stored = position
        self.proven_at = asked_at

    def _late(self) -> None:
        """Reports what is waited for, long before the group is taken for lost."""
        group, cluster = self._mirrored.config.group, self._mirrored.config.target.name
        text = f"group {group} on cluster {cluster} has not answered a commit for {ANSWER_SECONDS:g} s"
        self._mirrored.failed("positions", Retryable(text))

    async def _verify(self, positions: dict[Key, Position]) -> None:
        """Take out positions in topics that were created again: what was read since may be the other topic's. All that
        was reported before the brokers are asked is of the topic that they name then. Raises Retryable."""
        if not positions:
            return
        moved = [each for each in self._mirrored.partitions if each.target in positions]
        ids = await asyncio.to_thread(self._source_ids.of, {each.topic.name for each in moved})
        for each in moved:
            position = positions[each.target]
            topic_id = ids.get(each.topic.name, "")
            if topic_id != position.topic_id:
                del positions[each.target]
                now = f"has id {topic_id} now" if topic_id else "is gone"
                text = f"the source topic {now}, it was {position.topic_id}: it was deleted or created again"
                stop = Stop(Reason.SOURCE_RECREATED, text)
                self._mirrored.stop(each, stop)
                self._mirrored.partitions.created_again(each, stop)
