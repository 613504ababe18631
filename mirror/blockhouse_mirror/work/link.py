"""One partition inside a task: from the source to the target, with what is on its way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import time
from typing import Any

from confluent_kafka import KafkaError

from blockhouse.errors import Retryable
from blockhouse_mirror.gate.messages import Assigned, PartitionReport, Report
from blockhouse_mirror.protocol import provenance
from blockhouse_mirror.protocol.progress import Progress
from blockhouse_mirror.work.source import Key, Source
from blockhouse_mirror.work.tail import Tail


class Link:
    """One partition: from the source to the target. `started` once it is read."""

    __slots__ = (
        "_failures", "assigned", "careful", "careful_until", "ending", "latency_max", "latency_sum", "origin", "paused",
        "progress", "seen", "started",
    )  # fmt: skip

    def __init__(self, assigned: Assigned, source_cluster: str, failures: list[tuple[Link, KafkaError]]) -> None:
        self.assigned = assigned
        self.progress = Progress(assigned.offset, assigned.epoch, assigned.tail)
        self.origin = provenance.origin_format(source_cluster, assigned.topic_id, assigned.partition)
        self.started = self.paused = self.ending = False
        self.careful_until = assigned.careful_until
        self.careful = assigned.offset < assigned.careful_until
        """Records are sent one at a time, until one at or above `careful_until` is next."""
        self.seen = (-1, 0, -1)
        self.latency_sum = self.latency_max = 0.0
        self._failures = failures

    @property
    def key(self) -> Key:
        return self.assigned.topic, self.assigned.partition

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        """Called by the producer for the last record of each run, in order."""
        if error is not None:
            self._failures.append((self, error))
        elif not self._failures:
            now_ms, run = time() * 1000, self.progress.acknowledged(message.offset())
            self.latency_sum += run.records * now_ms - run.sum_ms
            self.latency_max = max(self.latency_max, now_ms - run.oldest_ms)

    def place(self) -> dict[str, int | str]:
        progress, assigned = self.progress, self.assigned
        return {
            "topic": assigned.topic,
            "partition": assigned.partition,
            "generation": assigned.generation,
            "offset": progress.position,
            "epoch": progress.epoch,
            "tail": progress.tail,
        }


@dataclass(frozen=True, slots=True)
class Tails:
    """What another thread has read of the target for these partitions; an error where it could not."""

    partitions: tuple[Assigned, ...]
    found: Mapping[Key, Tail] | Retryable


def report_of(links: Iterable[Link], source: Source) -> Report | None:
    """What changed since the last report; None when nothing did."""
    changed, acknowledged, latency_sum, latency_max = list[PartitionReport](), 0, 0.0, 0.0
    for link in links:
        progress, end = link.progress, source.end(link.key) if link.started and not link.ending else -1
        seen = (progress.position, progress.records, end)
        if seen == link.seen or not link.started:
            continue
        acknowledged += progress.records - link.seen[1]
        latency_sum, latency_max = latency_sum + link.latency_sum, max(latency_max, link.latency_max)
        link.seen, link.latency_sum, link.latency_max = seen, 0.0, 0.0
        figures = {"records": progress.records, "bytes": progress.bytes, "left_out": progress.left_out}
        waiting = {"letters": progress.letters, "in_flight": progress.in_flight_bytes, "end": end}
        changed.append(PartitionReport.model_validate({**link.place(), **figures, **waiting}))
    if not changed:
        return None
    return Report(
        partitions=tuple(changed),
        acknowledged=acknowledged,
        latency_sum_ms=latency_sum,
        latency_max_ms=latency_max,
    )
