"""Load as people read it: tables and sentences. Layout only; every figure comes from a sample or a history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from blockhouse.load.model import BrokerLoad, PartitionLoad, Quality, Rate, RateSource, Sample
from blockhouse.load.sizing import Sizing
from blockhouse.placement.model import TopicPartition

_UNITS = ("B/s", "kB/s", "MB/s", "GB/s")


def byte_rate(value: float | None) -> str:
    """Bytes a second for reading: 1.25 MB/s, of 10^6 bytes; `-` where unknown."""
    if value is None:
        return "-"
    for unit in _UNITS[:-1]:
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} {_UNITS[-1]}" if value < 1000 else f"{value:,.0f} {_UNITS[-1]}"


def show_sample(console: Console, sample: Sample, now: float, limit: int) -> None:
    """Brokers, then the busiest partitions or topics, then what is missing and how old all of it is."""
    if sample.brokers:
        console.print(_broker_table(sample.brokers))
    if sample.partitions:
        console.print(_partition_table(sample.partitions, limit))
    elif sample.topics:
        console.print(_topic_table(sample.topics, limit))
    show_problems(console, sample)
    console.print(summary(sample, now), markup=False, soft_wrap=True)


def show_problems(console: Console, sample: Sample) -> None:
    for problem in sample.problems:
        console.print(f"[yellow]missing:[/] {escape(str(problem))}", soft_wrap=True)


def summary(sample: Sample, now: float) -> str:
    """One line: how much, of how many, from where, how old."""
    loads = sample.partitions or sample.topics
    what = "partitions" if sample.partitions else "topics"
    total = sum(load.bytes for load in loads.values())
    estimated = sum(load.quality is Quality.ESTIMATED for load in loads.values())
    return (
        f"{byte_rate(total)} into {len(loads)} {what}, {estimated} of them estimated; source {sample.source}, "
        f"window {sample.window:.1f} s, age {sample.age(now):.0f} s, cluster {sample.cluster_id or 'of the file'}"
    )


def show_rates(console: Console, topic: str, rates: Mapping[TopicPartition, Rate]) -> None:
    """Each partition's rate with what it was derived from."""
    table = Table("partition", "bytes/s", "messages/s", "from", "age", "quality", box=None)
    for key, rate in rates.items():
        age = "-" if rate.age is None else f"{rate.age:.0f} s"
        table.add_row(str(key.partition), byte_rate(rate.bytes), _number(rate.messages), rate.source, age, rate.quality)
    console.print(f"topic {topic}", markup=False)
    console.print(table)
    for source in RateSource:
        count = sum(rate.source is source for rate in rates.values())
        if count:
            console.print(f"{count} partitions: {_MEANINGS[source]}", markup=False, soft_wrap=True)


def show_sizing(console: Console, found: Iterable[Sizing], replicas: int) -> None:
    """Cores and memory by topic, and streams that no number of cores helps."""
    table = Table("topic", "streams", "messages/s", "cores busy", "cores a replica", "memory a replica", box=None)
    sizings = list(found)
    for size in sizings:
        memory = f"{size.memory_per_replica / 1e9:.1f} GB"
        figures = (str(size.streams), _number(size.messages), f"{size.cores:.2f}", str(size.cores_per_replica), memory)
        table.add_row(size.topic, *figures)
    console.print(table)
    console.print(f"for {replicas} replicas, one of which may be down; 70 % of a core is planned", markup=False)
    for size in sizings:
        for key in size.hot:
            text = f"{key} is too much for one core, and a stream has only one: give topic {key.topic} more partitions"
            console.print(text, markup=False, soft_wrap=True)
        if size.unknown:
            text = f"topic {size.topic}: {size.unknown} streams have no known rate of messages and are not counted"
            console.print(text, markup=False, soft_wrap=True)


def as_json(sample: Sample, now: float) -> dict[str, Any]:
    """The whole sample for programs; rates in bytes/s and messages/s."""
    partitions: dict[str, dict[str, Any]] = defaultdict(dict)
    for key, load in sorted(sample.partitions.items()):
        partitions[key.topic][str(key.partition)] = _load(load)
    return {
        "cluster_id": sample.cluster_id,
        "source": sample.source,
        "at": sample.at,
        "age": sample.age(now),
        "window": sample.window,
        "brokers": {
            str(id): {
                "tx": load.tx,
                "rx": load.rx,
                "moved_out": load.moved_out,
                "moved_in": load.moved_in,
                "quality": load.quality,
            }
            for id, load in sample.brokers.items()
        },
        "topics": {topic: _load(load) for topic, load in sorted(sample.topics.items())},
        "partitions": dict(partitions),
        "problems": [
            {"kind": problem.kind, "subject": problem.subject, "text": problem.text} for problem in sample.problems
        ],
    }


_MEANINGS = {
    RateSource.PARTITION: "measured, or estimated, for the partition itself",
    RateSource.TOPIC: "nothing is known of them alone; they get an even share of their topic",
    RateSource.DEFAULT: "nothing is known of their topic either; the configured default",
}


def _load(load: PartitionLoad) -> dict[str, Any]:
    return {"bytes": load.bytes, "messages": load.messages, "quality": load.quality}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _broker_table(brokers: Mapping[int, BrokerLoad]) -> Table:
    table = Table("broker", "sent", "received", "moved out", "moved in", "quality", box=None)
    for id, load in brokers.items():
        figures = (load.tx, load.rx, load.moved_out, load.moved_in)
        table.add_row(str(id), *map(byte_rate, figures), load.quality)
    return table


def _partition_table(loads: Mapping[TopicPartition, PartitionLoad], limit: int) -> Table:
    table = Table("topic", "partition", "bytes/s", "messages/s", "share", "quality", box=None)
    total = sum(load.bytes for load in loads.values()) or 1.0
    for key, load in _busiest(loads.items(), limit):
        share = f"{load.bytes / total:.1%}"
        figures = (byte_rate(load.bytes), _number(load.messages), share, load.quality)
        table.add_row(key.topic, str(key.partition), *figures)
    return table


def _topic_table(loads: Mapping[str, PartitionLoad], limit: int) -> Table:
    table = Table("topic", "bytes/s", "messages/s", "quality", box=None)
    for topic, load in _busiest(loads.items(), limit):
        table.add_row(topic, byte_rate(load.bytes), _number(load.messages), load.quality)
    return table


def _busiest(loads: Iterable[tuple[Any, PartitionLoad]], limit: int) -> list[tuple[Any, PartitionLoad]]:
    ordered = sorted(loads, key=lambda found: (-found[1].bytes, found[0]))
    return ordered[:limit] if limit else ordered
