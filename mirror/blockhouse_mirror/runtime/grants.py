"""Grants partitions to tasks and asks them back, so that what is held becomes what is assigned."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

import structlog

from blockhouse.errors import Retryable
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.gate.messages import Assign, Assigned, PartitionKey, Revoke
from blockhouse_mirror.kafka.bounds import Bounds, LogBounds
from blockhouse_mirror.protocol import takeover
from blockhouse_mirror.protocol.ownership import Grant
from blockhouse_mirror.protocol.position import Holder, Position
from blockhouse_mirror.protocol.takeover import Log, Reason, Stop
from blockhouse_mirror.runtime.assignment import Assigner
from blockhouse_mirror.runtime.clock import boot_time
from blockhouse_mirror.runtime.discovering import NO_ANSWER
from blockhouse_mirror.runtime.mirrored import Mirrored
from blockhouse_mirror.runtime.partitions import Partition
from blockhouse_mirror.runtime.position_writer import PositionWriter
from blockhouse_mirror.runtime.tasks import Tasks

log = structlog.get_logger(__name__)
TICK = 0.1
RETRY = 5.0
"""Seconds until a partition that could not be granted, or failed for a reason that passes, is tried again."""
GAPS = frozenset(Reason) - {Reason.REFUSED, Reason.SOURCE_REPLACED}
"""Reasons that `onGap: Skip` passes."""


class Grants:
    """Of one driver. Nothing is granted once `closing` is set."""

    def __init__(
        self,
        mirrored: Mirrored,
        tasks: Tasks,
        assigner: Assigner,
        writer: PositionWriter,
        source: LogBounds,
        target: LogBounds,
    ) -> None:
        self.closing = False
        self._mirrored, self._tasks, self._assigner, self._writer = mirrored, tasks, assigner, writer
        self._source, self._target = source, target

    async def run(self) -> None:
        """Grant and revoke until cancelled."""
        ownership = self._mirrored.ownership
        while True:
            await asyncio.sleep(TICK)
            if self._mirrored.config.on_gap == "Skip":
                self._pass_gaps()
            desired = {} if self.closing else self._desired()
            changes = ownership.changes(desired, self._tasks.running, boot_time())
            self._revoke(changes.revoke)
            self._end_tasks()
            by_task: dict[str, list[Partition]] = defaultdict(list)
            for key, task in changes.grant:
                partition = self._mirrored.partitions.get(key)
                if partition is not None:
                    by_task[task].append(partition)
            for task, partitions in by_task.items():
                await self._grant(task, partitions)

    def _pass_gaps(self) -> None:
        """By the user's word what stopped for a gap continues behind it, once its task has released it."""
        for each in self._mirrored.partitions:
            held = self._mirrored.ownership.holder(each.key) is not None
            if each.stop is not None and each.stop.reason in GAPS and not held:
                each.stop = None

    def _desired(self) -> dict[Key, str]:
        now, owners = boot_time(), self._assigner.assignment.owners()
        return {
            each.key: owners[each.key]
            for each in self._mirrored.partitions
            if each.stop is None and each.position is not None and each.retry_at <= now and each.key in owners
        }

    def _revoke(self, revoked: Iterable[tuple[Key, Grant]]) -> None:
        by_task: dict[str, list[PartitionKey]] = defaultdict(list)
        for key, grant in revoked:
            self._mirrored.ownership.ending(key)
            asked = PartitionKey(topic=key.topic, partition=key.partition, generation=grant.generation)
            by_task[grant.task].append(asked)
        for task, keys in by_task.items():
            self._tasks.send(task, Revoke(partitions=tuple(keys)))

    def _end_tasks(self) -> None:
        """Tasks that the assignment has no more end when they hold nothing."""
        for task in self._tasks.desired - frozenset(self._assigner.assignment):
            if not self._mirrored.ownership.held_by(task):
                self._tasks.end(task)

    async def _grant(self, task: str, partitions: list[Partition]) -> None:
        """Decide where each continues, write that it is granted, and only then grant it."""
        sources = await asyncio.to_thread(self._source.of, [each.key for each in partitions])
        targets = await asyncio.to_thread(self._target.of, [each.target for each in partitions])
        ready: list[tuple[Partition, bool]] = []
        for each in partitions:
            source, target = sources.get(each.key), targets.get(each.target)
            if source is None or target is None:
                each.retry_at, each.waits = boot_time() + RETRY, NO_ANSWER
            elif each.position is not None and self._starts(each, each.position, source, target):
                ready.append((each, each.position.tail < target.begin))
        if not ready:
            return
        try:
            await self._writer.write()
        except Retryable as error:
            self._mirrored.failed("positions", error)
            return
        # Meanwhile the task may have ended, and a topic may have been created again.
        if task in self._tasks.running and not self.closing:
            granted = tuple(self._granted(each, task, cut=cut) for each, cut in ready if each.stop is None)
            if granted:
                self._tasks.send(task, Assign(partitions=granted))

    def _starts(self, partition: Partition, position: Position, source: Bounds, target: Bounds) -> bool:
        """Its position, checked against both logs, is set to granted; False when it stops."""
        found, topic = self._mirrored.discovery, partition.topic
        assert found is not None, "partitions were found by it"
        decision = takeover.decide(
            position,
            Log(found.source_cluster, topic.topic_id, *source),
            Log(found.target_cluster, topic.target_id, *target),
            skip=self._mirrored.config.on_gap == "Skip",
        )
        if isinstance(decision, takeover.Start) and decision.gap is None and partition.gaps_at(position.offset) > 1:
            decision = Stop(
                Reason.SOURCE_TRUNCATED,
                f"the brokers refuse to read on at offset {position.offset}, which was mirrored in leader epoch "
                f"{position.epoch}: the source's log was cut below it and written again",
            )
        if isinstance(decision, Stop):
            self._mirrored.stop(partition, decision)
            return False
        if decision.gap is None:
            continued = position.at(decision.offset, decision.epoch, decision.tail, Holder.GRANTED)
        else:
            partition.skipped += decision.skipped
            log.warning("mirror.gap_skipped", partition=str(partition.key), gap=decision.gap, records=decision.skipped)
            continued = Position(
                cluster=found.source_cluster,
                topic_id=topic.topic_id,
                start=decision.offset,
                offset=decision.offset,
                epoch=decision.epoch,
                target_topic_id=topic.target_id,
                tail=decision.tail,
                holder=Holder.GRANTED,
            )
        self._mirrored.partitions.moved(partition.key, continued)
        return True

    def _granted(self, partition: Partition, task: str, *, cut: bool) -> Assigned:
        grant = self._mirrored.ownership.granted(partition.key, task)
        position = partition.position
        assert position is not None, "it was just written"
        partition.waits = ""
        return Assigned(
            topic=partition.key.topic,
            partition=partition.number,
            generation=grant.generation,
            offset=position.offset,
            epoch=position.epoch,
            tail=position.tail,
            topic_id=partition.topic.topic_id,
            target_topic=partition.topic.target,
            tail_cut=cut,
            careful_until=partition.careful_until,
        )
