"""A driver's state as people, the operator and Prometheus see it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from blockhouse.contract.mirror import MirrorPartition, MirrorStatus, MirrorTask, OffendingPartition
from blockhouse_mirror.runtime.clock import boot_time
from blockhouse_mirror.runtime.driver import Driver
from blockhouse_mirror.runtime.partitions import Partition, Totals


def status_of(driver: Driver) -> MirrorStatus:
    """What `/status` answers."""
    assigner, config = driver.assigner, driver.mirrored.config
    owners, loads = assigner.assignment.owners(), assigner.assignment.loads(assigner.weights)
    quality = assigner.quality()
    sampled_at, found = assigner.sampled_at, driver.mirrored.discovery
    return MirrorStatus(
        mirror=config.name,
        source=config.source.name,
        target=config.target.name,
        delivery=config.delivery,
        tasks=tuple(
            MirrorTask(
                name=name, running=name in driver.tasks.running, partitions=len(keys), bytes_per_second=loads[name]
            )
            for name, keys in assigner.assignment.items()
        ),
        capped_by=assigner.capped_by,
        quality=quality.ratio if quality else 1.0,
        load_age_seconds=None if sampled_at is None else max(0.0, time.time() - sampled_at),
        rebalances={cause.value: count for cause, count in assigner.rebalances.by_cause.items()},
        moved=assigner.rebalances.moved,
        latency_seconds=driver.reports.latency_mean,
        partitions=tuple(
            _partition(driver, each, owners.get(each.key, ""))
            for each in sorted(driver.mirrored.partitions, key=lambda partition: partition.key)
        ),
        offending=tuple(
            OffendingPartition(
                topic=each.partition.topic,
                partition=each.partition.partition,
                bytes_per_second=each.rate,
                share=each.share,
                advice=each.advice,
            )
            for each in assigner.offending
        ),
        copies=dict(found.copies if found else {}),
        errors=driver.mirrored.errors | dict(found.problems if found else {}),
    )


def _partition(driver: Driver, each: Partition, task: str) -> MirrorPartition:
    grant = driver.mirrored.ownership.holder(each.key)
    return MirrorPartition(
        topic=each.topic.name,
        partition=each.number,
        task=task,
        holder=grant.task if grant else "",
        position=each.position.offset if each.position else -1,
        end=each.lateness.end,
        lag_seconds=each.lateness.seconds(boot_time()),
        bytes_per_second=driver.assigner.weights.get(each.key, 0.0),
        rate_source=driver.assigner.sources.get(each.key, ""),
        records=each.records,
        bytes=each.bytes,
        left_out=each.left_out,
        dead_letters=each.letters,
        skipped=each.skipped,
        stopped=each.stop.reason if each.stop else "",
        waits=each.waits,
        message=each.stop.message if each.stop else "",
    )


class MirrorCollector(Collector):
    """Figures of a driver, made when they are asked for."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def collect(self) -> Iterable[Metric]:
        driver = self._driver
        partitions = list(driver.mirrored.partitions)
        now = boot_time()
        yield from _counted(driver.mirrored.partitions.totals)
        reports = driver.reports
        yield _counter("latency_seconds", "Sum of seconds from source append to acknowledgement", reports.latency_sum)
        yield _counter("acknowledged", "Records in that sum", reports.acknowledged)
        late = max((each.lateness.seconds(now) for each in partitions if each.stop is None), default=0.0)
        yield _gauge("lag_seconds", "Lateness of the latest partition that is not stopped", late)
        behind = sum(each.lateness.records() for each in partitions)
        yield _gauge("lag_records", "Offsets between positions and log ends", behind)
        yield _gauge("partitions", "Partitions of the source", len(partitions))
        held = sum(driver.mirrored.ownership.holder(each.key) is not None for each in partitions)
        yield _gauge("partitions_held", "Partitions that a task has a grant of", held)
        yield _gauge("tasks", "Tasks in the assignment", len(driver.assigner.assignment))
        yield _gauge("tasks_running", "Tasks that can be spoken to", len(driver.tasks.running))
        quality = driver.assigner.quality()
        yield _gauge(
            "assignment_ratio", "Load of the heaviest task against the mean", quality.ratio if quality else 1.0
        )
        yield _counter("moved_partitions", "Partitions moved by rebalances", driver.assigner.rebalances.moved)
        rebalances = CounterMetricFamily("blockhouse_mirror_rebalances", "Changes of the assignment", labels=["cause"])
        for cause, count in driver.assigner.rebalances.by_cause.items():
            rebalances.add_metric([cause.value], count)
        yield rebalances
        stopped = GaugeMetricFamily("blockhouse_mirror_stopped", "Partitions stopped", labels=["reason"])
        reasons = [each.stop.reason for each in partitions if each.stop]
        for reason in sorted(set(reasons)):
            stopped.add_metric([reason], reasons.count(reason))
        yield stopped
        if driver.assigner.sampled_at is not None:
            age = max(0.0, time.time() - driver.assigner.sampled_at)
            yield _gauge("load_age_seconds", "Since the newest sample of load", age)
        yield _gauge("offending_partitions", "Partitions no assignment helps", len(driver.assigner.offending))


def _counted(totals: Totals) -> Iterable[Metric]:
    yield _counter("records", "Records mirrored", totals.records)
    yield _counter("bytes", "Bytes of records mirrored", totals.bytes)
    yield _counter("left_out", "Records that came from the target", totals.left_out)
    yield _counter("dead_letters", "Records the target refused, kept apart", totals.letters)
    yield _counter("skipped", "Records lost to gaps that were passed", totals.skipped)


def registry_of(driver: Driver) -> CollectorRegistry:
    """What `/metrics` answers from."""
    registry = CollectorRegistry()
    registry.register(MirrorCollector(driver))
    return registry


def _counter(name: str, words: str, value: float) -> Metric:
    return CounterMetricFamily(f"blockhouse_mirror_{name}", words, value)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(f"blockhouse_mirror_{name}", words, value)
