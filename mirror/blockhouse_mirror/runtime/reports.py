"""What tasks report becomes positions, figures, and the end of grants."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from blockhouse.gate.messages import Hello
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.gate.messages import Bye, Failed, FromTask, Ping, Place, Released, Report
from blockhouse_mirror.protocol.position import Holder
from blockhouse_mirror.protocol.takeover import CREATED_AGAIN, Reason, Stop
from blockhouse_mirror.runtime.clock import boot_time
from blockhouse_mirror.runtime.grants import RETRY
from blockhouse_mirror.runtime.mirrored import Mirrored
from blockhouse_mirror.runtime.partitions import Partition

log = structlog.get_logger(__name__)

TASK_GONE = "its task is gone; its grant and what it had sent have to run out"


class Reports:
    """Hears the tasks of one driver. `ours` answers whether the mirror is, `look_now` asks which topics there are."""

    def __init__(self, mirrored: Mirrored, ours: Callable[[], bool], look_now: Callable[[], None]) -> None:
        self.acknowledged = 0
        self.latency_sum = self.latency_max = 0.0
        self.ours = ours
        self._mirrored, self._look_now = mirrored, look_now

    @property
    def latency_mean(self) -> float:
        """Seconds from source append to target acknowledgement; 0 before the first record."""
        return self.latency_sum / self.acknowledged if self.acknowledged else 0.0

    def task_ended(self, task: str, alive_at: float) -> None:
        for key in self._mirrored.ownership.lost(task, alive_at):
            partition = self._mirrored.partitions.get(key)
            if partition is not None:
                partition.waits = TASK_GONE

    def heard(self, task: str, message: FromTask) -> None:
        match message:
            case Report():
                self._report(task, message)
            case Released():
                self._placed(task, message, Holder.SETTLED)
                self._mirrored.ownership.confirmed(Key(message.topic, message.partition), message.generation)
            case Failed():
                self._failed(task, message)
            case Hello() | Ping() | Bye():  # `runtime.tasks` answers these
                log.warning("task.unexpected", task=task, message=message.type)

    def _report(self, task: str, message: Report) -> None:
        now = boot_time()
        self.acknowledged += message.acknowledged
        self.latency_sum += message.latency_sum_ms / 1000
        self.latency_max = max(self.latency_max, message.latency_max_ms / 1000)
        for report in message.partitions:
            partition = self._placed(task, report, Holder.GRANTED)
            if partition is not None:
                partition.count(report.generation, report.records, report.bytes, report.left_out, report.letters)
                if report.end >= 0:
                    partition.lateness.seen(now, report.end)

    def _placed(self, task: str, place: Place, holder: Holder) -> Partition | None:
        """The place of a partition that the task holds is its position from now on; None for an old grant's."""
        key = Key(place.topic, place.partition)
        grant, partition = self._mirrored.ownership.holder(key), self._mirrored.partitions.get(key)
        if grant is None or (grant.task, grant.generation) != (task, place.generation):
            return None
        if partition is None or partition.position is None:
            return None
        if partition.stop is not None and partition.stop.reason in CREATED_AGAIN:
            return None  # what a task has read since may be of the other topic
        position = partition.position.at(place.offset, place.epoch, place.tail, holder)
        self._mirrored.partitions.moved(key, position)
        return partition

    def _failed(self, task: str, failed: Failed) -> None:
        key = Key(failed.topic, failed.partition)
        partition, grant = self._mirrored.partitions.get(key), self._mirrored.ownership.holder(key)
        if partition is None or grant is None or grant.generation != failed.generation:
            return
        log.warning("mirror.partition_failed", task=task, partition=str(key), reason=failed.reason, why=failed.message)
        if failed.careful_until >= 0:
            partition.careful_until, partition.waits = failed.careful_until, f"{failed.reason}: {failed.message}"
        elif failed.reason == "RecordRefused":
            self._mirrored.stop(partition, Stop(Reason.REFUSED, f"the target refuses the record at {failed.message}"))
        else:
            # The next grant finds out what the logs hold, after the topics were read again: it may be another one now.
            partition.retry_at, partition.waits = boot_time() + RETRY, f"{failed.reason}: {failed.message}"
            if failed.reason == "Gap":
                partition.gap_found()
            self._look_now()
        if failed.released:
            self._mirrored.ownership.confirmed(key, failed.generation)
